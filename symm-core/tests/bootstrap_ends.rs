//! How PEs leave: with a goodbye, or giving up with a reason; over threads and over sockets.

mod worlds;

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use symm_core::bootstrap::{Bootstrap, Liveness, Tag};
use symm_core::{Error, Pe};

use worlds::{both, long};

const T: Tag = Tag { team: 3, seq: 0 };

struct Told(Mutex<mpsc::Sender<Pe>>);

impl Liveness for Told {
    fn failed(&self, pe: Pe, _: &str) {
        let _ = self.0.lock().expect("no panic").send(pe);
    }
}

fn told(boot: &Arc<dyn Bootstrap>) -> mpsc::Receiver<Pe> {
    let (tx, rx) = mpsc::channel();
    boot.watch(Arc::new(Told(Mutex::new(tx))));
    rx
}

#[test]
fn a_goodbye_is_no_death_and_loses_nothing() {
    both(3, |world| {
        let report = told(&world[0]);
        let large = vec![7; 20 << 20];
        world[1].send(Pe(0), T, &large, &[]).expect("sent");
        world[1].close();
        world[1].close();
        assert!(world[0].recv(Pe(1), T, long()).expect("sent before the goodbye").payload == large);
        let e = world[0].recv(Pe(1), T, long()).expect_err("it left");
        let left =
            |e: &Error| matches!(e, Error::PeerFailed { pe: Pe(1), why } if why.contains("said goodbye"));
        assert!(left(&e), "{e}");
        let e = world[0].send(Pe(1), T, b"x", &[]).expect_err("it left");
        assert!(left(&e), "{e}");
        assert!(matches!(world[1].recv(Pe(0), T, long()), Err(Error::Bootstrap { .. })));
        world[2].close();
        assert!(matches!(world[0].recv(Pe(2), T, long()), Err(Error::PeerFailed { pe: Pe(2), .. })));
        assert!(report.recv_timeout(Duration::from_millis(200)).is_err());
        assert!(world[0].failed().is_empty());
    });
}

/// What it had sent comes; then its failure, with its own words, for everybody and for observers.
#[test]
fn who_gives_up_has_failed_and_says_why() {
    for n in [3, 12] {
        both(n, |world| {
            let report = told(&world[0]);
            let began = Instant::now();
            world[1].send(Pe(0), T, b"before", &[]).expect("sent");
            world[1].abandon("it ran out of ideas");
            world[1].abandon("nothing more is said");
            world[1].close();
            assert_eq!(world[0].recv(Pe(1), T, long()).expect("sent before").payload, b"before");
            for other in [&world[0], &world[2]] {
                let why = "it ran out of ideas";
                let told = |e| e == Err(Error::PeerFailed { pe: Pe(1), why: why.to_owned() });
                assert!(told(other.recv(Pe(1), T, long()).map(drop)));
                assert!(told(other.send(Pe(1), T, b"x", &[])));
                assert_eq!(other.failed(), [Pe(1)]);
                assert_eq!(other.failure(Pe(1)).as_deref(), Some("it ran out of ideas"));
            }
            assert!(began.elapsed() < Duration::from_secs(1));
            assert_eq!(report.recv_timeout(Duration::from_secs(1)), Ok(Pe(1)));
            assert!(matches!(world[1].send(Pe(0), T, b"x", &[]), Err(Error::Bootstrap { .. })));
        });
    }
}
