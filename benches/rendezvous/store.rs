//! A central store as jobs use it to meet: one thread serves every connection; a get is answered when all its keys are set.
//!
//! It listens at several ports, which are for processes with thousands of connections: a local port is used once for each
//! address that is connected to, and Linux searches longer for a free one the fewer are left (28,232 in all). 10,000
//! connections to one port beside 10,000 listening sockets took tens of seconds to make, before anything was exchanged.

use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

/// Marks the number of a listening socket.
const DOOR: u64 = 1 << 63;
const SET: u8 = 0;
const GET: u8 = 1;
const GET_RANGE: u8 = 2;

/// An answer that several may get.
type Answer = Rc<Vec<u8>>;

#[derive(Default)]
struct Shelf {
    values: HashMap<u64, Vec<u8>>,
    /// Connection, its keys, and how many are still missing.
    waiting: HashMap<u64, (Vec<u64>, usize)>,
    /// Who waits for a key.
    wanted: HashMap<u64, Vec<u64>>,
    ranges: HashMap<(u64, u64), Range>,
}

/// Keys from one on, wanted as a whole: kept as a count and one answer, so that what everybody wants is looked up once.
#[derive(Default)]
struct Range {
    set: u64,
    waiting: Vec<u64>,
    answer: Option<Answer>,
}

/// One PE, as the store sees it.
struct Customer {
    stream: TcpStream,
    said: Vec<u8>,
    /// Answers that its socket had no room for, and how much of the first one is sent.
    owed: VecDeque<(Answer, usize)>,
}

/// Starts a store on a thread that lives as long as the process; it listens at so many ports.
pub(crate) fn serve(ports: usize) -> std::io::Result<Vec<SocketAddr>> {
    let listen = |_| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        // As deep a queue as the system allows.
        rustix::net::listen(&listener, i32::from(u16::MAX))?;
        Ok(listener)
    };
    let listeners = (0..ports).map(listen).collect::<std::io::Result<Vec<_>>>()?;
    let addresses = listeners.iter().map(TcpListener::local_addr).collect();
    std::thread::Builder::new().name("store".to_owned()).spawn(move || {
        if let Err(e) = run(&listeners) {
            eprintln!("store: {e}");
        }
    })?;
    addresses
}

fn run(listeners: &[TcpListener]) -> std::io::Result<()> {
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    for (i, listener) in listeners.iter().enumerate() {
        epoll::add(&poll, listener, EventData::new_u64(DOOR | i as u64), EventFlags::IN)?;
    }
    let (mut customers, mut next) = (HashMap::<u64, Customer>::new(), 0);
    let mut shelf = Shelf::default();
    let mut events = Vec::with_capacity(256);
    let mut buffer = [0; 16 << 10];
    loop {
        events.clear();
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        for event in &events {
            let number = event.data.u64();
            if number & DOOR != 0 {
                while let Ok((stream, _)) = listeners[(number & !DOOR) as usize].accept() {
                    stream.set_nonblocking(true)?;
                    stream.set_nodelay(true)?;
                    epoll::add(&poll, &stream, EventData::new_u64(next), EventFlags::IN)?;
                    customers.insert(next, Customer { stream, said: Vec::new(), owed: VecDeque::new() });
                    next += 1;
                }
                continue;
            }
            let flags = event.flags;
            if flags.contains(EventFlags::OUT) {
                settle(&poll, &mut customers, number)?;
            }
            let Some(customer) = customers.get_mut(&number) else { continue };
            match customer.stream.read(&mut buffer) {
                Ok(0) => drop(customers.remove(&number)),
                Ok(n) => {
                    customer.said.extend_from_slice(&buffer[..n]);
                    let mut ready = Vec::new();
                    while let Some(request) = take(&mut customer.said) {
                        ready.extend(shelf.handle(number, request));
                    }
                    for (to, answer) in ready {
                        if let Some(customer) = customers.get_mut(&to) {
                            customer.owed.push_back((answer, 0));
                            settle(&poll, &mut customers, to)?;
                        }
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(_) => drop(customers.remove(&number)),
            }
        }
    }
}

/// Sends what is owed as far as there is room, and asks to hear of more room if something is left.
fn settle(poll: &OwnedFd, customers: &mut HashMap<u64, Customer>, number: u64) -> std::io::Result<()> {
    let Some(Customer { stream, owed, .. }) = customers.get_mut(&number) else { return Ok(()) };
    let mut interest = EventFlags::IN;
    while let Some((answer, sent)) = owed.front_mut() {
        match stream.write(&answer[*sent..]) {
            Ok(n) => *sent += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                interest |= EventFlags::OUT;
                break;
            }
            Err(_) => {
                customers.remove(&number);
                return Ok(());
            }
        }
        if *sent == answer.len() {
            owed.pop_front();
        }
    }
    Ok(epoll::modify(poll, stream, EventData::new_u64(number), interest)?)
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
    fn handle(&mut self, from: u64, (kind, key, body): (u8, u64, Vec<u8>)) -> Vec<(u64, Answer)> {
        let mut done = Vec::new();
        let (words, _) = body.as_chunks::<8>();
        let words = || words.iter().map(|k| u64::from_le_bytes(*k));
        if kind == SET {
            self.values.insert(key, body);
            done.push((from, Rc::new(vec![0; 4])));
            for who in self.wanted.remove(&key).unwrap_or_default() {
                if let Some((_, missing)) = self.waiting.get_mut(&who) {
                    *missing -= 1;
                    if *missing == 0
                        && let Some((keys, _)) = self.waiting.remove(&who)
                    {
                        done.push((who, Rc::new(self.answer(keys.into_iter()))));
                    }
                }
            }
            let within = self.ranges.iter_mut().filter(|((first, n), _)| (*first..first + n).contains(&key));
            let whole: Vec<_> = within
                .filter_map(|(at, range)| {
                    range.set += 1;
                    (range.set == at.1).then_some(*at)
                })
                .collect();
            whole.into_iter().for_each(|at| done.extend(self.finish(at)));
        } else if kind == GET {
            let keys: Vec<u64> = words().collect();
            let missing: Vec<u64> = keys.iter().copied().filter(|k| !self.values.contains_key(k)).collect();
            if missing.is_empty() {
                done.push((from, Rc::new(self.answer(keys.into_iter()))));
            } else {
                missing.iter().for_each(|k| self.wanted.entry(*k).or_default().push(from));
                self.waiting.insert(from, (keys, missing.len()));
            }
        } else if let Some(n) = words().next() {
            let set = || (key..key + n).filter(|k| self.values.contains_key(k)).count() as u64;
            let fresh = || Range { set: set(), ..Range::default() };
            let range = self.ranges.entry((key, n)).or_insert_with(fresh);
            match &range.answer {
                Some(answer) => done.push((from, Rc::clone(answer))),
                None => range.waiting.push(from),
            }
            if range.answer.is_none() && range.set == n {
                done.extend(self.finish((key, n)));
            }
        }
        done
    }

    /// Answers those who wait for a range that is whole.
    fn finish(&mut self, at: (u64, u64)) -> Vec<(u64, Answer)> {
        let answer = Rc::new(self.answer(at.0..at.0 + at.1));
        let Some(range) = self.ranges.get_mut(&at) else { return Vec::new() };
        range.answer = Some(Rc::clone(&answer));
        std::mem::take(&mut range.waiting).into_iter().map(|who| (who, Rc::clone(&answer))).collect()
    }

    fn answer(&self, keys: impl Iterator<Item = u64>) -> Vec<u8> {
        let values: Vec<u8> = keys.flat_map(|k| with_length(&self.values[&k])).collect();
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
        self.ask(GET, keys.len() as u64, &body).map(values)
    }

    /// The values of `n` keys from `first` on, once they are set.
    pub(crate) fn get_range(&mut self, first: u64, n: u64) -> std::io::Result<Vec<Vec<u8>>> {
        self.ask(GET_RANGE, first, &n.to_le_bytes()).map(values)
    }
}

fn values(answer: Vec<u8>) -> Vec<Vec<u8>> {
    let (mut rest, mut values) = (answer.as_slice(), Vec::new());
    while let Some((len, after)) = rest.split_first_chunk::<4>() {
        let (value, after) = after.split_at(u32::from_le_bytes(*len) as usize);
        values.push(value.to_vec());
        rest = after;
    }
    values
}
