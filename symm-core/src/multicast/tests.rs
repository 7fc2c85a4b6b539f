//! The sequence against a driver that fails where it is told to, and complains of every call out of order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::bootstrap::{Bootstrap, Group, Local};
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// Calls that can fail.
const CALLS: [(&str, Stage); 6] = [
    ("create", Stage::Create),
    ("export", Stage::Create),
    ("import", Stage::Import),
    ("add_device", Stage::Import),
    ("bind", Stage::Bind),
    ("map", Stage::Map),
];

#[derive(Debug, Default)]
struct Object {
    devices: usize,
    references: usize,
    added: usize,
    bound: usize,
    /// Bindings in all; a member that died takes its own away.
    ever_bound: usize,
    mapped: usize,
}

/// What all devices share: the objects of the fabric.
#[derive(Debug, Default)]
struct Fabric {
    objects: Mutex<HashMap<u8, Object>>,
    created: AtomicUsize,
    complaints: Mutex<Vec<String>>,
}

impl Fabric {
    fn with<T>(&self, id: u8, call: &str, f: impl FnOnce(&mut Object) -> (T, bool)) -> T {
        let mut objects = self.objects.lock().unwrap();
        let known = objects.contains_key(&id);
        let object = objects.entry(id).or_default();
        let (result, fine) = f(object);
        if !known || !fine {
            self.complaints.lock().unwrap().push(format!("{call} of {id}: {object:?}, known {known}"));
        }
        if object.references == 0 {
            objects.remove(&id);
        }
        result
    }

    /// Nothing may be left, and nothing have been called out of order.
    fn expect_clean(&self, what: &str) {
        assert!(self.objects.lock().unwrap().is_empty(), "{what}: {self:?}");
        assert!(self.complaints.lock().unwrap().is_empty(), "{what}: {self:?}");
    }
}

/// One PE's device.
struct Fake {
    fabric: Arc<Fabric>,
    /// The call that fails, and how often.
    fails: Option<&'static str>,
    left: AtomicUsize,
    transient: bool,
    /// Ended in the middle of `dies`.
    dies: Option<(&'static str, Arc<Local>)>,
    bound: AtomicBool,
}

impl Fake {
    fn call(&self, name: &'static str) -> Result<(), Failed> {
        if let Some((call, boot)) = &self.dies
            && *call == name
        {
            boot.die();
        }
        if self.fails == Some(name) && self.left.load(Ordering::Relaxed) > 0 {
            self.left.fetch_sub(1, Ordering::Relaxed);
            return Err(Failed { why: format!("{name} said no"), transient: self.transient });
        }
        Ok(())
    }
}

impl Driver for Fake {
    type Object = u8;
    type Mapping = u8;
    type Memory = ();

    fn create(&self, devices: usize, _bytes: usize) -> Result<u8, Failed> {
        self.call("create")?;
        let id = self.fabric.created.fetch_add(1, Ordering::Relaxed) as u8;
        let object = Object { devices, references: 1, ..Object::default() };
        self.fabric.objects.lock().unwrap().insert(id, object);
        Ok(id)
    }

    fn export(&self, object: &u8) -> Result<Export, Failed> {
        self.call("export")?;
        Ok(Export { bytes: vec![*object], fds: Vec::new() })
    }

    fn import(&self, export: &Export) -> Result<u8, Failed> {
        self.call("import")?;
        let id = export.bytes[0];
        match self.fabric.objects.lock().unwrap().get_mut(&id) {
            Some(object) => object.references += 1,
            // All who had it gave it up, as when a member died.
            None => return Err(Failed { why: format!("object {id} is gone"), transient: false }),
        }
        Ok(id)
    }

    fn add_device(&self, object: &u8) -> Result<(), Failed> {
        self.call("add_device")?;
        self.fabric.with(*object, "add_device", |o| {
            o.added += 1;
            ((), o.added <= o.devices)
        });
        Ok(())
    }

    fn bind(&self, object: &u8, (): &(), _bytes: usize) -> Result<(), Failed> {
        self.call("bind")?;
        self.bound.store(true, Ordering::Relaxed);
        self.fabric.with(*object, "bind", |o| {
            o.bound += 1;
            o.ever_bound += 1;
            // Every device must be in, or the real driver waits or fails.
            ((), o.added == o.devices)
        });
        Ok(())
    }

    fn map(&self, object: &u8, _bytes: usize) -> Result<u8, Failed> {
        self.call("map")?;
        self.fabric.with(*object, "map", |o| {
            o.mapped += 1;
            ((), o.ever_bound == o.devices)
        });
        Ok(*object)
    }

    fn unmap(&self, mapping: u8) -> Result<(), Failed> {
        self.fabric.with(mapping, "unmap", |o| {
            o.mapped -= 1;
            ((), true)
        });
        Ok(())
    }

    fn unbind(&self, object: &u8, _bytes: usize) -> Result<(), Failed> {
        let was = self.bound.swap(false, Ordering::Relaxed);
        self.fabric.with(*object, "unbind", |o| {
            o.bound -= 1;
            ((), was)
        });
        Ok(())
    }

    fn release(&self, object: u8) -> Result<(), Failed> {
        let bound = self.bound.load(Ordering::Relaxed);
        self.fabric.with(object, "release", |o| {
            o.references -= 1;
            ((), !bound)
        });
        Ok(())
    }
}

/// What a test changes of one PE.
#[derive(Clone, Copy, Default)]
struct Change {
    pe: usize,
    fails: Option<&'static str>,
    times: usize,
    transient: bool,
    dies: Option<&'static str>,
    unsupported: bool,
    /// Its device is PE 0's.
    same_device: bool,
    absent: bool,
}

/// What a PE's set-up ended with; `None` for one that never came.
type Ended = Option<Result<Outcome<Fake>>>;

/// All PEs' results; what came of a success is kept until all are back.
fn run(n: usize, limit: Duration, change: Change) -> (Vec<Ended>, Arc<Fabric>) {
    let fabric = Arc::new(Fabric::default());
    let boots = Local::world(n);
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = boots
            .iter()
            .enumerate()
            .map(|(i, boot)| {
                let (fabric, boot) = (fabric.clone(), boot.clone());
                scope.spawn(move || {
                    let mine = i == change.pe;
                    if mine && change.absent {
                        return None;
                    }
                    let fake = Arc::new(Fake {
                        fabric,
                        fails: change.fails.filter(|_| mine),
                        left: AtomicUsize::new(change.times),
                        transient: change.transient,
                        dies: change.dies.filter(|_| mine).map(|call| (call, boot.clone())),
                        bound: AtomicBool::new(false),
                    });
                    let device = if mine && change.same_device { 0 } else { i as u8 };
                    let no = Err("multicast is switched off".to_owned());
                    let support = if mine && change.unsupported { no } else { Ok([device; 16]) };
                    let members = (0..n).map(crate::Pe::from).collect();
                    let group = Group::new(boot as Arc<dyn Bootstrap>, 7, members).unwrap();
                    Some(set_up(&fake, &group, &(), 1 << 21, &support, Deadline::after(limit)))
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    drop(boots);
    (results, fabric)
}

const LONG: Duration = Duration::from_secs(20);

fn fallbacks(results: &[Ended]) -> Vec<Fallback> {
    let one = |r: &Ended| match r {
        Some(Ok(Outcome::Fallback(f))) => f.clone(),
        other => panic!("{other:?}"),
    };
    results.iter().map(one).collect()
}

#[test]
fn all_get_it_and_nothing_is_left_afterwards() {
    for n in [1, 2, 3, 8] {
        let (results, fabric) = run(n, LONG, Change::default());
        for r in &results {
            let Some(Ok(Outcome::Ready(m))) = r else { panic!("{r:?}") };
            assert_eq!(m.mapping(), Some(&0));
        }
        {
            let objects = fabric.objects.lock().unwrap();
            let o = &objects[&0];
            // Rank 0's first reference is gone.
            assert_eq!((o.references, o.added, o.bound, o.mapped), (n, n, n, n));
        }
        drop(results);
        fabric.expect_clean("after a success");
    }
}

#[test]
fn a_failure_at_any_stage_on_any_pe_is_everybodys_fallback() {
    for n in [1, 2, 4] {
        for (call, stage) in CALLS {
            let only_first = stage == Stage::Create;
            for pe in 0..if only_first { 1 } else { n } {
                let change = Change { pe, fails: Some(call), times: 1, ..Change::default() };
                let (results, fabric) = run(n, LONG, change);
                let want = Fallback { pe: crate::Pe::from(pe), stage, why: format!("{call} said no") };
                assert_eq!(fallbacks(&results), vec![want; n], "{call} on PE {pe} of {n}");
                fabric.expect_clean(call);
            }
        }
    }
}

#[test]
fn without_support_everywhere_nothing_is_created() {
    for (change, why) in [
        (Change { pe: 1, unsupported: true, ..Change::default() }, "multicast is switched off"),
        (Change { pe: 2, same_device: true, ..Change::default() }, "its device is also that of PE 0"),
    ] {
        let (results, fabric) = run(3, LONG, change);
        let want = Fallback { pe: crate::Pe::from(change.pe), stage: Stage::Support, why: why.to_owned() };
        assert_eq!(want.to_string(), format!("no multicast: PE {} failed in support: {why}", change.pe));
        assert_eq!(fallbacks(&results), vec![want; 3]);
        assert_eq!(fabric.created.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_fabric_that_starts_up_is_waited_for_by_all() {
    for (call, _) in CALLS {
        let change = Change { fails: Some(call), times: 2, transient: true, ..Change::default() };
        let (results, fabric) = run(3, LONG, change);
        assert!(results.iter().all(|r| matches!(r, Some(Ok(Outcome::Ready(_))))), "{call}: {results:?}");
        drop(results);
        fabric.expect_clean(call);
    }
}

#[test]
fn a_member_that_does_not_come_is_named() {
    let change = Change { pe: 1, absent: true, ..Change::default() };
    let (results, fabric) = run(3, Duration::from_millis(200), change);
    for r in [&results[0], &results[2]] {
        let late = |late: &[crate::Pe]| late.contains(&crate::Pe(1));
        let named = match r {
            Some(Err(Error::Timeout { late: l, .. })) => late(l),
            Some(Err(Error::PeerFailed { pe, .. })) => *pe == crate::Pe(1),
            _ => false,
        };
        assert!(named, "{r:?}");
    }
    assert_eq!(fabric.created.load(Ordering::Relaxed), 0);
}

#[test]
fn a_death_on_the_way_is_an_error_and_leaves_nothing() {
    for (call, _) in CALLS.into_iter().skip(2) {
        let change = Change { pe: 1, dies: Some(call), ..Change::default() };
        let (results, fabric) = run(3, Duration::from_secs(5), change);
        for (i, r) in results.iter().enumerate() {
            let failed = matches!(r, Some(Err(Error::PeerFailed { pe, .. })) if *pe == crate::Pe(1));
            assert!(failed || i == 1 && matches!(r, Some(Err(_))), "{call}, PE {i}: {r:?}");
        }
        drop(results);
        fabric.expect_clean(call);
    }
}
