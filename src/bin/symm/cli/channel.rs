//! What PEs tell the process that started them: one JSON line a message, through a pipe that all of them share.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::MemfdFlags;
use rustix::io::FdFlags;
use rustix::pipe::PipeFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use symm::Error;

use super::error::{Class, Failure};

/// Set by the parent: the numbers of two descriptors, of the pipe and of a file for the PEs (−1 if there is none).
const PARENT: &str = "SYMM_PARENT";
/// Writes up to this length are not torn (`PIPE_BUF`).
const WHOLE: usize = 4096;

/// A message of a PE: a command has its own progress `P` and its own result `D`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message<P, D> {
    /// How far PE 0 is.
    Progress(P),
    /// PE 0's result.
    Done(Box<D>),
    /// PE and why.
    Failed(u32, Failure),
}

/// A PE's end.
#[derive(Debug)]
pub(crate) struct ToParent {
    pipe: File,
    /// The copy of the file that the parent read for all.
    pub(crate) file: Option<PathBuf>,
}

impl ToParent {
    /// The end that the parent left, if a process of the same command started this one.
    pub(crate) fn from_env() -> Result<Option<Self>, Failure> {
        let Ok(text) = std::env::var(PARENT) else { return Ok(None) };
        let wrong = |why: String| Failure::new(Class::Run, "Setting", format!("{PARENT} is {text:?}: {why}"));
        let numbers =
            text.split_once(',').and_then(|(p, f)| Some((p.parse::<u32>().ok()?, f.parse::<i32>().ok()?)));
        let (pipe, file) = numbers.ok_or_else(|| wrong("it is for this program's own use".to_owned()))?;
        // Opened anew rather than taken over by number, which nothing could prove to be right.
        let path = |fd: u32| format!("/proc/self/fd/{fd}");
        let pipe = OpenOptions::new().write(true).open(path(pipe)).map_err(|e| wrong(e.to_string()))?;
        let file = u32::try_from(file).ok().map(|fd| path(fd).into());
        Ok(Some(ToParent { pipe, file }))
    }

    /// Sends one message. A parent that is gone has taken this process with it, so there is nobody to tell of an error.
    pub(crate) fn send<P: Serialize, D: Serialize>(&mut self, message: Message<P, D>) {
        let mut line = encode(&message);
        if let (true, Message::Failed(pe, mut failure)) = (line.len() > WHOLE, message) {
            // Characters take up to 6 bytes each.
            let e = &mut failure.error;
            e.message = e.message.chars().take(300).collect();
            e.file = e.file.take().map(|f| f.chars().take(300).collect());
            line = encode(&Message::<P, D>::Failed(pe, failure));
        }
        let _ = self.pipe.write_all(&line);
    }
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("plain structs should encode");
    line.push(b'\n');
    line
}

/// The parent's ends: what PEs inherit.
pub(crate) struct FromPes {
    read: OwnedFd,
    write: OwnedFd,
    file: Option<OwnedFd>,
}

impl FromPes {
    /// A pipe, and a copy of a file (which may be a pipe itself, that can be read only once).
    pub(crate) fn new(file: Option<&[u8]>) -> Result<Self, Error> {
        let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
        let (read, write) = pipe.map_err(|e| Error::system("pipe2", e))?;
        // PEs inherit this end.
        rustix::io::fcntl_setfd(&write, FdFlags::empty()).map_err(|e| Error::system("fcntl(F_SETFD)", e))?;
        let file = file.map(copy).transpose()?;
        Ok(FromPes { read, write, file })
    }

    /// The variable that PEs are given.
    pub(crate) fn env(&self) -> (OsString, OsString) {
        let file = self.file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        (PARENT.into(), format!("{},{file}", self.write.as_raw_fd()).into())
    }

    /// Where the copy of the file can be read in this process.
    pub(crate) fn file_path(&self) -> Option<PathBuf> {
        self.file.as_ref().map(|fd| Path::new("/proc/self/fd").join(fd.as_raw_fd().to_string()))
    }

    /// The messages, and the end that must be dropped once the PEs have ended, for the messages to end.
    pub(crate) fn split<P, D>(self) -> (impl Iterator<Item = Message<P, D>> + Send, impl Sized)
    where
        P: DeserializeOwned,
        D: DeserializeOwned,
    {
        let lines = BufReader::new(File::from(self.read)).lines().map_while(Result::ok);
        let messages = lines.filter_map(|line| {
            serde_json::from_str(&line).inspect_err(|e| log::warn!("a PE sent {line:?}: {e}")).ok()
        });
        (messages, (self.write, self.file))
    }
}

fn copy(bytes: &[u8]) -> Result<OwnedFd, Error> {
    let fd = rustix::fs::memfd_create("symm-file", MemfdFlags::empty());
    let mut file = File::from(fd.map_err(|e| Error::system("memfd_create", e))?);
    file.write_all(bytes).map_err(|e| Error::System {
        call: "write",
        errno: e.raw_os_error().unwrap_or(0),
        text: e.to_string(),
    })?;
    Ok(file.into())
}
