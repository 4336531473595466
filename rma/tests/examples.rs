//! The example programs, as processes under `farside run`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use farside_harness::quick;

/// Numbers of ranks.
fn ranks() -> &'static [u32] {
    if quick() { &[2, 3, 4] } else { &[1, 2, 3, 4, 8] }
}

/// Seconds after which the launcher ends a run, with a nonzero exit code.
const LIMIT_S: &str = "120";

/// Runs an example on `ranks` ranks and returns its exit status and output.
fn run(ranks: u32, example: &str, arguments: &[&str]) -> Output {
    farside(ranks, example, arguments).output().unwrap()
}

fn farside(ranks: u32, example: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(farside_harness::farside());
    command.args(["run", "--timeout", LIMIT_S, "-n", &ranks.to_string()]);
    command.arg(farside_harness::example("farside-rma", example)).args(arguments).stdin(Stdio::null());
    command
}

/// The runtime writes its log only if `FARSIDE_LOG` is set, with the rank in each line.
#[test]
fn log_says_which_rank() {
    let log = |level: &str| {
        let output = farside(2, "hello_put_get", &[]).env("FARSIDE_LOG", level).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = log("debug");
    for rank in 0..2 {
        let started = said.lines().find(|l| l.contains(&format!("farside rank {rank}: ")) && l.contains("started"));
        assert!(started.is_some_and(|l| l.contains(&format!("rank={rank}")) && l.contains("size=2")), "{said}");
    }
    assert_eq!(log("off"), "");
}

/// Runs an example, checks that it succeeds, and returns its standard output.
fn succeeds(ranks: u32, example: &str, arguments: &[&str]) -> String {
    let output = run(ranks, example, arguments);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{example} {arguments:?} on {ranks} ranks: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// An empty folder.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if path.exists() {
        std::fs::remove_dir_all(&path).unwrap();
    }
    path
}

#[test]
fn heat_stencil_four_versions_same_picture() {
    // Sizes that are not multiples of the ranks, with blocks of one row, and with ranks that have no cells.
    let sizes: &[_] =
        if quick() { &[("61", "6"), ("2", "5")] } else { &[("61", "40"), ("9", "7"), ("2", "5"), ("1", "1")] };
    for &(size, steps) in sizes {
        let mut pictures = Vec::new();
        // The picture is the same as over shared memory, for every device.
        let out = folder(&format!("heat-{size}-shm"));
        let arguments = ["--size", size, "--steps", steps, "--version", "fence", "--out", out.to_str().unwrap()];
        let status = farside(2, "heat_stencil", &arguments).env("FARSIDE_DEVICE", "shm").output().unwrap().status;
        assert!(status.success(), "over shared memory: {status}");
        pictures.push(std::fs::read(out.join("heat-fence.png")).unwrap());
        for ranks in ranks().iter().copied() {
            let out = folder(&format!("heat-{size}-{ranks}"));
            let arguments = ["--size", size, "--steps", steps, "--out", out.to_str().unwrap()];
            let text = succeeds(ranks, "heat_stencil", &arguments);
            for version in ["fence", "pscw", "lock", "am"] {
                assert!(text.lines().any(|line| line.starts_with(version)), "{version} is missing in:\n{text}");
                pictures.push(std::fs::read(out.join(format!("heat-{version}.png"))).unwrap());
            }
        }
        assert!(pictures[0].starts_with(b"\x89PNG\r\n\x1a\n"));
        assert!(pictures.iter().all(|picture| *picture == pictures[0]), "{size} x {size} cells");
    }
}

#[test]
fn heat_stencil_one_version_alone() {
    for version in ["fence", "pscw", "lock", "am"] {
        let out = folder(&format!("heat-alone-{version}"));
        succeeds(2, "heat_stencil", &["--version", version, "--size", "20", "--out", out.to_str().unwrap()]);
        let files: Vec<_> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(files, [format!("heat-{version}.png").as_str()]);
    }
}

#[test]
fn heat_stencil_out_that_cannot_be_written() {
    let output = run(3, "heat_stencil", &["--size", "8", "--out", "/dev/null/pictures"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("/dev/null/pictures"));
}

#[test]
fn gups_no_update_lost() {
    for ranks in ranks().iter().copied() {
        let text = succeeds(ranks, "gups", &["--bits", "12"]);
        assert_eq!(text.matches("16384 updates of 2^12 words").count(), 2, "{text}");
    }
    // Fewer words than ranks, so that updates conflict.
    succeeds(8, "gups", &["--bits", "2", "--updates-per-word", "3000"]);
}

#[test]
fn hash_table_every_key_once() {
    for ranks in ranks().iter().copied() {
        let text = succeeds(ranks, "hash_table", &["--keys", "3001"]);
        let distinct = 1501 * (ranks - 1) + 3001;
        assert!(text.contains(&format!("{} inserts of {distinct} keys", 3001 * ranks)), "{text}");
    }
    // The table is almost full, so that keys collide, also across the end of the table.
    succeeds(4, "hash_table", &["--keys", "500", "--fill", "99"]);
}

#[test]
fn transpose_any_shape() {
    for ranks in ranks().iter().copied() {
        for (rows, columns) in [("70", "50"), ("50", "70"), ("1", "33"), ("7", "1"), ("3", "3"), ("0", "5")] {
            succeeds(ranks, "transpose", &["--rows", rows, "--columns", columns]);
        }
    }
}

#[test]
fn halo_3d_every_synchronization_and_scheme() {
    for ranks in ranks().iter().copied() {
        // Blocks of different sizes, and ranks without cells; in a quick run only with three ranks.
        for (size, steps) in [("11", if quick() { "2" } else { "4" }), ("1", "2")] {
            if quick() && (size == "1") != (ranks == 3) {
                continue;
            }
            let text = succeeds(ranks, "halo_3d", &["--size", size, "--steps", steps]);
            assert_eq!(text.lines().count(), 3 * 5, "{text}");
        }
    }
    for (i, sync) in ["fence", "pscw", "lock"].into_iter().enumerate() {
        for (j, scheme) in ["auto", "generic", "gather", "multi-w", "sgrs"].into_iter().enumerate() {
            if quick() && i != j {
                continue;
            }
            let arguments = ["--sync", sync, "--scheme", scheme, "--size", "8", "--steps", "3"];
            assert_eq!(succeeds(2, "halo_3d", &arguments).lines().count(), 1);
        }
    }
}

/// Programs that compare their results with those of a serial run.
pub(crate) const COMPARED: [(&str, &[&str]); 16] = [
    ("fft_tasks", &[]),
    ("histogram", &["--numbers", "3000", "--bins", "17"]),
    ("index_gather", &["--indices", "3000", "--elements", "17"]),
    ("permutation", &["--numbers", "700"]),
    ("work_queue", &["--tasks", "301"]),
    ("ring_pipeline", &["--blocks", "41", "--len", "1030"]),
    ("sparse_matrix", &["--rows", "203"]),
    ("graph_search", &["--vertices", "403"]),
    ("n_body", &["--bodies", "7"]),
    ("shortest_paths", &["--vertices", "403"]),
    ("graph500", &["--scale", "7"]),
    ("triangles", &["--vertices", "301"]),
    ("hash_map", &["--keys", "1001"]),
    ("sample_sort", &["--numbers", "2003", "--different", "500"]),
    ("sparse_transpose", &["--rows", "203"]),
    ("topological_sort", &["--rows", "203"]),
];

#[test]
fn symmetric_memory_arrays_and_calls_same_as_one_rank() {
    for ranks in ranks().iter().copied() {
        for (example, arguments) in COMPARED {
            assert_eq!(succeeds(ranks, example, arguments).lines().count(), 1, "{example}");
        }
    }
}

/// The same programs as ranks of a simulated fat tree, whose links they share. `ci/test scale` takes more ranks.
#[test]
fn symmetric_memory_arrays_and_calls_on_a_simulated_fat_tree() {
    let ranks = std::env::var("FARSIDE_TEST_RANKS").unwrap_or_else(|_| if quick() { "6" } else { "64" }.to_owned());
    let number: u32 = ranks.parse().unwrap();
    let many = number > 64;
    // With thousands of ranks, those whose messages do not grow with the square of the ranks, or nearly so.
    let few = [
        "fft_tasks",
        "work_queue",
        "ring_pipeline",
        "shortest_paths",
        "graph500",
        "triangles",
        "sparse_transpose",
        "topological_sort",
    ];
    for (example, arguments) in COMPARED {
        if number > 1024 && !few.contains(&example) {
            continue;
        }
        // Their messages grow with the square of the ranks, or their calls with the keys.
        let arguments: &[&str] = match example {
            "hash_map" if many => &["--keys", "11"],
            "n_body" if many => &["--bodies", "1"],
            "sample_sort" if many => &["--numbers", "203", "--different", "50"],
            _ => arguments,
        };
        let mut command = Command::new(farside_harness::farside());
        command.args(["sim", "-n", &ranks, "--topology", "fat-tree:44x94/36x1", "--network", "hop=130"]);
        let output = command.arg(farside_harness::example("farside-rma", example)).args(arguments).output().unwrap();
        let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(output.status.success(), "{example} on {ranks} simulated ranks: {}\n{out}\n{err}", output.status);
        println!("{}{err}", out.lines().last().unwrap_or_default());
    }
}

#[test]
fn hello_put_get_every_rank_speaks() {
    for ranks in ranks().iter().copied() {
        let text = succeeds(ranks, "hello_put_get", &[]);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        let expected = |me: u32| {
            format!(
                "rank {me} has {} from the left, and gets {} from the right",
                100 + (me + ranks - 1) % ranks,
                100 + me
            )
        };
        assert_eq!(lines, (0..ranks).map(expected).collect::<Vec<_>>());
    }
}
