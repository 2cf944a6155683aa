//! The child process, which runs cases.

use std::io::Write;
use std::path::Path;

use fuzz::rand::SeedableRng;
use fuzz::rand::rngs::StdRng;
use nix::sys::resource::{Resource, setrlimit};

use super::{corpus, harm, visit};

/// The test that a child runs.
pub const CHILD: &str = "damaged::child::runs_cases";
/// The environment variable with the folder of the tables.
pub const FOLDER: &str = "BIREME_DAMAGED_FOLDER";
/// The environment variable with the path of the file that lists the child's cases.
pub const NUMBERS: &str = "BIREME_DAMAGED_CASES";

/// Address space that a child may map beyond what it has at its start. Threads' stacks and heaps take some 300 MiB of
/// it, and a table of 600 rows with all its indexes a few MiB.
const ADDRESS_SPACE_BYTES: u64 = 2 << 30;

#[test]
#[ignore = "runs in children of fuzz_damaged_tables"]
fn runs_cases() {
    let (Ok(folder), Ok(list)) = (std::env::var(FOLDER), std::env::var(NUMBERS)) else { return };
    let limit = mapped_bytes() + ADDRESS_SPACE_BYTES;
    setrlimit(Resource::RLIMIT_AS, limit, limit).unwrap();
    setrlimit(Resource::RLIMIT_CORE, 0, 0).unwrap();
    visit::record_panics();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let folder = Path::new(&folder);
    for case in std::fs::read_to_string(list).unwrap().split(' ') {
        let (number, seed) = case.split_once(':').unwrap();
        print_line(&format!("begins {number}"));
        let mut rng = StdRng::seed_from_u64(seed.parse().unwrap());
        let copy = tempfile::tempdir_in(folder).unwrap();
        let table = corpus::copy(folder, copy.path(), &mut rng);
        let harmed = harm::harm(&mut rng, folder, &table);
        if std::env::var("BIREME_FUZZ_CASE").is_ok() {
            eprintln!("{number}: {harmed:?}");
        }
        let uri = table.to_str().unwrap().to_owned();
        match runtime.block_on(visit::visit(uri)) {
            None => print_line(&format!("ends {number}")),
            Some(what) => print_line(&format!("ends {number} {what}")),
        }
    }
}

fn print_line(line: &str) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "\n{}", line.replace('\n', " ")).unwrap();
    stdout.flush().unwrap();
}

/// Returns the bytes of address space in use.
fn mapped_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}
