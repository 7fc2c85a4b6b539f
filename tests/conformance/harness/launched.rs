//! PEs that somebody else's launcher starts (`--launcher 'mpirun …'`): each connects to the parent, which then talks with it
//! as with its own children.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::group::{Process, Said, keep, listen, prepare};
use super::select::Configuration;

/// Name of the socket at which the parent listens.
const SOCKET: &str = "SYMM_CONFORMANCE_SOCKET";
/// How long a launcher may take to start its processes.
const START: Duration = Duration::from_secs(30);
/// Where launchers say which process is which; any order would do, but reports name PEs.
const RANKS: [&str; 3] = ["PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"];

/// In a PE: if a launcher started it, its standard input and output become the connection with the parent.
pub(super) fn connect() -> std::io::Result<()> {
    let Ok(name) = std::env::var(SOCKET) else { return Ok(()) };
    let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    let rank = RANKS.iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
    writeln!(stream, "{rank}")?;
    rustix::stdio::dup2_stdin(stream.as_fd())?;
    rustix::stdio::dup2_stdout(stream.as_fd())?;
    Ok(())
}

/// Starts the PEs by `launcher` (words, with the number of PEs added as `-n N`) and waits until each has connected.
pub(super) fn start(
    launcher: &str,
    configuration: &Configuration,
    settings: &[(&str, &str)],
    events: &Sender<(usize, Option<Said>)>,
) -> Result<(Vec<Process>, Child), String> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let text = |e: std::io::Error| format!("{launcher}: {e}");
    let name = format!("symm-conformance-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let address = SocketAddr::from_abstract_name(&name).map_err(text)?;
    let listener = UnixListener::bind_addr(&address).map_err(text)?;
    listener.set_nonblocking(true).map_err(text)?;
    let mut words = launcher.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("mpirun"));
    prepare(&mut command, configuration, settings);
    command.args(words).args(["-n", &configuration.n_pes.to_string()]).env(SOCKET, &name);
    command.arg(std::env::current_exe().map_err(text)?);
    let mut child = command.spawn().map_err(text)?;
    let log = Arc::new(Mutex::new(Vec::new()));
    let mut readers = Vec::new();
    readers.extend(child.stdout.take().map(|out| keep(out, log.clone())));
    readers.extend(child.stderr.take().map(|err| keep(err, log.clone())));
    match meet(&listener, &mut child, configuration.n_pes) {
        Ok(streams) => {
            let mut processes = Vec::new();
            for (pe, reader) in streams.into_iter().enumerate() {
                let commands = Box::new(Commands(reader.get_ref().try_clone().map_err(text)?));
                // What they and the launcher log is one text.
                let mut all = vec![listen(pe, reader, events.clone(), log.clone())];
                all.append(&mut readers);
                processes.push(Process::over(commands, log.clone(), all));
            }
            Ok((processes, child))
        }
        Err(why) => {
            drop(child.kill());
            drop(child.wait());
            readers.into_iter().for_each(|r| drop(r.join()));
            let log = log.lock().map(|l| String::from_utf8_lossy(&l).into_owned()).unwrap_or_default();
            Err(format!("{launcher}: {why}\n{log}"))
        }
    }
}

/// The way to a PE; the PE sees its end when this is dropped, though the way back stays open.
struct Commands(UnixStream);

impl Write for Commands {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        // Fails only where the PE is gone.
        let _ = self.0.shutdown(std::net::Shutdown::Write);
    }
}

/// The connections, in the order of ranks.
fn meet(listener: &UnixListener, child: &mut Child, n: usize) -> Result<Vec<BufReader<UnixStream>>, String> {
    let began = Instant::now();
    let mut streams: Vec<Option<BufReader<UnixStream>>> = (0..n).map(|_| None).collect();
    while let Some(missing) = streams.iter().position(Option::is_none) {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(|e| e.to_string())?;
                let mut reader = BufReader::new(stream);
                let mut rank = String::new();
                reader.read_line(&mut rank).map_err(|e| e.to_string())?;
                let place = rank.trim().parse::<usize>().ok().and_then(|rank| streams.get_mut(rank));
                *place.ok_or_else(|| format!("a process says that it is number {rank:?}"))? = Some(reader);
            }
            Err(_) if began.elapsed() > START => return Err(format!("PE {missing} did not come")),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("it ended with {status}"));
        }
    }
    Ok(streams.into_iter().flatten().collect())
}
