//! Every crate that a build of this workspace uses has a licence that its users can live with.

use std::process::Command;

/// Licences that ask for no more than naming the authors.
const ALLOWED: [&str; 9] =
    ["Apache-2.0", "MIT", "MIT-0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "ISC", "Unicode-3.0", "Zlib"];

#[test]
fn every_dependency_has_an_allowed_licence() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--all-features", "--locked", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .expect("cargo metadata should run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let packages = metadata["packages"].as_array().expect("cargo metadata lists packages");
    assert!(packages.len() > 50, "only {} packages were seen", packages.len());
    let mut refused = Vec::new();
    for package in packages {
        let name = format!("{} {}", package["name"], package["version"]);
        let Some(text) = package["license"].as_str() else {
            refused.push(format!("{name}: no licence named"));
            continue;
        };
        // Older crates write "MIT/Apache-2.0".
        let expression = spdx::Expression::parse_mode(text, spdx::ParseMode::LAX);
        let allowed = expression
            .is_ok_and(|e| e.evaluate(|req| req.license.id().is_some_and(|id| ALLOWED.contains(&id.name))));
        if !allowed {
            refused.push(format!("{name}: {text}"));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
