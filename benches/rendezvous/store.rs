//! A central store as jobs use it to meet: one thread serves every connection; a get is answered when all its keys are set.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

const DOOR: u64 = u64::MAX;
const SET: u8 = 0;
const GET: u8 = 1;

#[derive(Default)]
struct Shelf {
    values: HashMap<u64, Vec<u8>>,
    /// Connection, its keys, and how many are still missing.
    waiting: HashMap<u64, (Vec<u64>, usize)>,
    /// Who waits for a key.
    wanted: HashMap<u64, Vec<u64>>,
}

/// Starts a store on a thread that lives as long as the process.
pub(crate) fn serve() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    // As deep a queue as the system allows.
    rustix::net::listen(&listener, i32::from(u16::MAX))?;
    let address = listener.local_addr()?;
    std::thread::Builder::new().name("store".to_owned()).spawn(move || {
        if let Err(e) = run(&listener) {
            eprintln!("store: {e}");
        }
    })?;
    Ok(address)
}

fn run(listener: &TcpListener) -> std::io::Result<()> {
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&poll, listener, EventData::new_u64(DOOR), EventFlags::IN)?;
    let (mut streams, mut next) = (HashMap::<u64, (TcpStream, Vec<u8>)>::new(), 0);
    let mut shelf = Shelf::default();
    let mut events = Vec::with_capacity(256);
    loop {
        events.clear();
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        for event in &events {
            let number = event.data.u64();
            if number == DOOR {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    stream.set_nodelay(true)?;
                    epoll::add(&poll, &stream, EventData::new_u64(next), EventFlags::IN)?;
                    streams.insert(next, (stream, Vec::new()));
                    next += 1;
                }
                continue;
            }
            let Some((stream, bytes)) = streams.get_mut(&number) else { continue };
            let mut buffer = [0; 16 << 10];
            match stream.read(&mut buffer) {
                Ok(0) => drop(streams.remove(&number)),
                Ok(n) => {
                    bytes.extend_from_slice(&buffer[..n]);
                    let mut ready = Vec::new();
                    while let Some(request) = take(bytes) {
                        ready.extend(shelf.handle(number, request));
                    }
                    for (to, answer) in ready {
                        if let Some((stream, _)) = streams.get_mut(&to) {
                            // Answers fit the socket's buffer; its owner reads before it asks again.
                            stream.write_all(&answer)?;
                        }
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(_) => drop(streams.remove(&number)),
            }
        }
    }
}

/// The first whole request: kind, key or number of keys, body.
fn take(bytes: &mut Vec<u8>) -> Option<(u8, u64, Vec<u8>)> {
    let (head, body) = bytes.split_first_chunk::<13>()?;
    let len = u32::from_le_bytes(head[9..].try_into().ok()?) as usize;
    let body = body.get(..len)?.to_vec();
    let request = (head[0], u64::from_le_bytes(head[1..9].try_into().ok()?), body);
    bytes.drain(..13 + len);
    Some(request)
}

impl Shelf {
    /// Answers that can be given now.
    fn handle(&mut self, from: u64, (kind, key, body): (u8, u64, Vec<u8>)) -> Vec<(u64, Vec<u8>)> {
        let mut done = Vec::new();
        if kind == SET {
            self.values.insert(key, body);
            done.push((from, vec![0; 4]));
            for who in self.wanted.remove(&key).unwrap_or_default() {
                if let Some((_, missing)) = self.waiting.get_mut(&who) {
                    *missing -= 1;
                    if *missing == 0
                        && let Some((keys, _)) = self.waiting.remove(&who)
                    {
                        done.push((who, self.answer(&keys)));
                    }
                }
            }
            return done;
        }
        let (words, _) = body.as_chunks::<8>();
        let keys: Vec<u64> = words.iter().map(|k| u64::from_le_bytes(*k)).collect();
        let missing: Vec<u64> = keys.iter().copied().filter(|k| !self.values.contains_key(k)).collect();
        if missing.is_empty() {
            done.push((from, self.answer(&keys)));
        } else {
            missing.iter().for_each(|k| self.wanted.entry(*k).or_default().push(from));
            self.waiting.insert(from, (keys, missing.len()));
        }
        done
    }

    fn answer(&self, keys: &[u64]) -> Vec<u8> {
        let values: Vec<u8> = keys.iter().flat_map(|k| with_length(&self.values[k])).collect();
        with_length(&values)
    }
}

fn with_length(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat()
}

/// One PE's connection.
pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Client(stream))
    }

    fn ask(&mut self, kind: u8, key: u64, body: &[u8]) -> std::io::Result<Vec<u8>> {
        let head = [&[kind][..], &key.to_le_bytes(), &(body.len() as u32).to_le_bytes(), body].concat();
        self.0.write_all(&head)?;
        let mut len = [0; 4];
        self.0.read_exact(&mut len)?;
        let mut answer = vec![0; u32::from_le_bytes(len) as usize];
        self.0.read_exact(&mut answer)?;
        Ok(answer)
    }

    pub(crate) fn set(&mut self, key: u64, value: &[u8]) -> std::io::Result<()> {
        self.ask(SET, key, value).map(drop)
    }

    /// The values of all these keys, once they are set.
    pub(crate) fn get(&mut self, keys: &[u64]) -> std::io::Result<Vec<Vec<u8>>> {
        let body: Vec<u8> = keys.iter().flat_map(|k| k.to_le_bytes()).collect();
        let answer = self.ask(GET, keys.len() as u64, &body)?;
        let (mut rest, mut values) = (answer.as_slice(), Vec::with_capacity(keys.len()));
        while let Some((len, after)) = rest.split_first_chunk::<4>() {
            let (value, after) = after.split_at(u32::from_le_bytes(*len) as usize);
            values.push(value.to_vec());
            rest = after;
        }
        Ok(values)
    }
}
