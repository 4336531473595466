//! A short run of `farside-bench papers`: its page has a section for each paper, with measured figures, and plots that
//! say where their times come from.

use std::env;
use std::process::Command;

use farside_harness::{mpi_library, verify_library};

use crate::datatype::folders_with_launcher;

/// The text of each part between two marks.
fn parts<'a>(page: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    page.split(from).skip(1).map(|rest| rest.split_once(to).unwrap().0).collect()
}

#[test]
fn page_has_a_section_of_each_paper_with_figures_and_captions() {
    let built = mpi_library();
    assert_eq!(built.parent(), verify_library().parent());
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("papers.html");
    let output = Command::new(env!("CARGO_BIN_EXE_farside-bench"))
        .args(["papers", "--quick", "--page"])
        .arg(&page)
        .env("PATH", env::join_paths(folders_with_launcher()).unwrap())
        .env("FARSIDE_MPI", built.parent().unwrap())
        .env("FARSIDE_PEERS", folder.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let page = std::fs::read_to_string(page).unwrap();
    let sections = parts(&page, "<section>", "</section>");
    assert_eq!(sections.len(), 9);
    for (number, section) in (1..).zip(&sections) {
        assert!(section.starts_with(&format!("<h2>§{number} ")), "{section}");
        assert!(!section.contains("failed"), "{section}");
        // A note says what cannot be simulated or what disturbed the run, and the claim is there and judged.
        assert!(section.contains("The shape of the claim"), "§{number}: {section}");
        let (_, body) = section.split_once("<tbody>").unwrap();
        let rows = parts(body, "<tr>", "</tr>");
        let measured = rows.iter().filter_map(|row| parts(row, "<td class=\"n\">", "</td>").get(1).copied());
        let figures = measured.filter(|cell| cell.contains(|c: char| c.is_ascii_digit())).count();
        assert!(figures > 0, "§{number} has no measured figure: {section}");
        let plots = parts(section, "<figure>", "</figure>");
        assert!(!plots.is_empty() || number == 5, "§{number} has no plot");
        for plot in plots {
            let caption = parts(plot, "<figcaption>", "</figcaption>");
            assert!(plot.starts_with("<svg") && plot.contains("<polyline"), "{plot}");
            assert!(
                caption[0].starts_with("Measured on this machine: ") || caption[0].starts_with("Simulated: "),
                "{plot}"
            );
            assert!(
                !caption[0].starts_with("Simulated") || caption[0].contains(" = ") || caption[0].contains("LoP"),
                "{plot}"
            );
        }
    }
    for number in [1, 2, 3, 4, 6, 9] {
        let simulated = sections[number - 1].matches("<figcaption>Simulated").count();
        assert!(simulated > 0, "§{number} has nothing simulated");
    }
    for number in [5, 7, 8] {
        assert!(sections[number - 1].contains("Not simulated: "), "§{number} does not say why nothing is simulated");
    }
    // Nothing is loaded from elsewhere.
    assert_eq!(page.matches("http").count(), page.matches("http://www.w3.org/").count());
    assert!(!page.contains("NaN") && !page.contains("inf "), "{page}");
}
