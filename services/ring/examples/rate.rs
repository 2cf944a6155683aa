//! Measures how many reads per second one ring carries out, and how much CPU time a read takes. Usage: `rate FILE
//! READ_DEPTH [pread]`.
//!
//! Runs a closed loop of random 4,096-byte reads for 3 seconds: the sink of each read starts the next one. This
//! measures the ring alone and is not a benchmark of a service. It does not drop caches: O_DIRECT bypasses the page
//! cache, and a tmpfs is always in RAM.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use address::{ByteOffset, DriveNo};
use nix::sys::resource::{UsageWho, getrusage};
use ring::{
    Direct, Engine, OpenOptions, ReadError, ReadSink, Ring, RingConfig, SlabFile, submit_all,
};
use tokio::sync::Notify;
use tokio::time::Instant;

struct Load {
    ring: Ring,
    me: RefCell<Option<Rc<dyn ReadSink>>>,
    random: Cell<u64>,
    sectors: u64,
    until: Instant,
    in_flight: Cell<u32>,
    done: Notify,
}

impl Load {
    fn read(&self) {
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.set(random);
        let offset = ByteOffset(random % self.sectors * 4096);
        let me = self.me.borrow();
        self.ring.read(me.as_ref().unwrap(), DriveNo(0), offset, 4096, 0).unwrap();
    }
}

impl ReadSink for Load {
    fn read_done(&self, _: u64, outcome: Result<&[u8], ReadError>, _: Instant) {
        std::hint::black_box(outcome.unwrap()[0]);
        if Instant::now() < self.until {
            return self.read();
        }
        self.in_flight.set(self.in_flight.get() - 1);
        if self.in_flight.get() == 0 {
            self.done.notify_one();
        }
    }
}

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    let [_, path, depth, engine @ ..] = &arguments[..] else {
        return eprintln!("rate FILE READ_DEPTH [pread]");
    };
    let engine = if engine.is_empty() { Engine::Auto } else { Engine::Pread };
    let options = OpenOptions { direct: Direct::Prefer, ..Default::default() };
    let file = SlabFile::open(path, options).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(submit_all)
        .build()
        .unwrap();
    runtime.block_on(async {
        let depth = depth.parse().unwrap();
        let sectors = file.len() / 4096;
        let config = RingConfig { slot_bytes: 4096, engine, ..Default::default() };
        let ring = Ring::start(&config, &[file]).unwrap();
        println!("{}; {}", ring.describe(), ring.files()[0].queue_depth());
        let start = Instant::now();
        let load = Rc::new(Load {
            ring: ring.clone(),
            me: RefCell::default(),
            random: Cell::new(88_172_645_463_325_252),
            sectors,
            until: start + Duration::from_secs(3),
            in_flight: Cell::new(depth),
            done: Notify::new(),
        });
        *load.me.borrow_mut() = Some(Rc::clone(&load) as _);
        let cpu_before = cpu();
        (0..depth).for_each(|_| load.read());
        load.done.notified().await;
        let (elapsed, cpu) = (start.elapsed().as_secs_f64(), cpu() - cpu_before);
        let stats = ring.stats();
        let reads = stats.reads_completed as f64;
        println!(
            "{:.0} reads/s, {:.2} us of CPU each, {:.1} reads a submit, {:.1} a reap",
            reads / elapsed,
            cpu / reads * 1e6,
            reads / stats.submits as f64,
            reads / stats.reaps as f64,
        );
        load.me.take();
    });
}

fn cpu() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}
