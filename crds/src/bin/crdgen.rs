//! Writes every CustomResourceDefinition of the suite into the chart that owns it.
//!
//! `cargo crdgen` runs this with `deploy/charts`; `crds/tests/generated.rs` fails while the files are stale.

use std::{env, fs, path::PathBuf, process::ExitCode};

fn main() -> ExitCode {
    let Some(charts) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: crdgen CHARTS_FOLDER, for example: crdgen deploy/charts");
        return ExitCode::from(2);
    };
    for owned in kmetal_crds::all() {
        let folder = charts.join(owned.chart).join("files/crds");
        let file = folder.join(format!("{}.yaml", owned.crd.spec.names.plural));
        let written = kmetal_crds::yaml(&owned.crd)
            .map_err(std::io::Error::other)
            .and_then(|text| fs::create_dir_all(&folder).and_then(|()| fs::write(&file, text)));
        if let Err(error) = written {
            eprintln!("{}: {error}", file.display());
            return ExitCode::FAILURE;
        }
        println!("{}", file.display());
    }
    ExitCode::SUCCESS
}
