//! The channels through which the driver lets a process use fabric handles.

use std::fs::File;
use std::path::{Path, PathBuf};

/// Where they are.
pub(crate) const FOLDER: &str = "/dev/nvidia-caps-imex-channels";

/// Those of a folder, in order.
pub(crate) fn channels(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut all: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    all.retain(|path| path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"channel")));
    all.sort();
    all
}

/// What keeps this process from them; `None` if it can open one.
pub(crate) fn lacks() -> Option<String> {
    lacks_in(Path::new(FOLDER))
}

fn lacks_in(folder: &Path) -> Option<String> {
    let mut refused = None;
    for channel in channels(folder) {
        match File::open(&channel) {
            Ok(_) => return None,
            // The first one's reason stands for all.
            Err(e) if refused.is_none() => {
                refused = Some(format!("the IMEX channel {} cannot be opened: {e}", channel.display()));
            }
            Err(_) => {}
        }
    }
    let none = || format!("there is no IMEX channel: an administrator makes {}/channel0", folder.display());
    Some(refused.unwrap_or_else(none))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_counted_and_nothing_else_and_one_must_open() {
        let folder = std::env::temp_dir().join(format!("symm-imex-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        assert!(lacks_in(&folder).is_some_and(|why| why.contains("no IMEX channel")));
        std::fs::write(folder.join("other"), "").unwrap();
        // A link to nothing cannot be opened, by root neither.
        std::os::unix::fs::symlink(folder.join("nothing"), folder.join("channel0")).unwrap();
        let refused = lacks_in(&folder);
        std::fs::write(folder.join("channel12"), "").unwrap();
        let (found, opens) = (channels(&folder), lacks_in(&folder));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(refused.is_some_and(|why| why.contains("channel0 cannot be opened")));
        assert_eq!(found, [folder.join("channel0"), folder.join("channel12")]);
        assert_eq!(opens, None);
        assert!(channels(&folder).is_empty() && lacks_in(&folder).is_some());
    }
}
