//! Options of mounts as mount(8) and fstab have them: `ro,noexec,timeout=0,_netdev`.

use pando_fuse::Flags;
use std::path::PathBuf;
use std::time::Duration;

/// Options that are mount(8)'s own, or say what is so anyway.
const NOT_OURS: [&str; 28] = [
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "nousers",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "_netdev",
    "nofail",
    "loud",
    "mand",
    "nomand",
    "iversion",
    "noiversion",
    "lazytime",
    "nolazytime",
    "symfollow",
    "helper",
    "uhelper",
    "user_id",
    "group_id",
    "rootmode",
    "max_read",
    "comment",
];

/// What was said of a mount. `None`: nothing.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Words {
    /// Words for flags of the kernel, in order.
    pub flags: Vec<String>,
    /// `remount`: change what is mounted already.
    pub remount: bool,
    /// `allow_other`
    pub allow_other: bool,
    /// `nolock`: locks of programs hold on this mount alone.
    pub local_locks: bool,
    /// `default_permissions`: the kernel checks in any case.
    pub default_permissions: bool,
    /// `timeout=SECONDS`
    pub timeout: Option<f64>,
    /// `publish=SECONDS`
    pub publish: Option<f64>,
    /// `key=FILE`
    pub key: Option<PathBuf>,
    /// What nobody knows.
    pub unknown: Vec<String>,
}

impl Words {
    /// Adds a list with commas between.
    pub fn add(&mut self, list: &str) -> Result<(), String> {
        for word in list.split(',').filter(|w| !w.is_empty()) {
            self.word(word)?;
        }
        Ok(())
    }

    /// Fails if something was said that nobody knows.
    pub fn all_known(&self) -> Result<(), String> {
        match self.unknown.first() {
            Some(first) => Err(format!("\"{first}\" is not an option of this filesystem")),
            None => Ok(()),
        }
    }

    fn word(&mut self, word: &str) -> Result<(), String> {
        let (name, value) = word.split_once('=').map_or((word, None), |(n, v)| (n, Some(v)));
        match (name, value) {
            ("remount", None) => self.remount = true,
            ("allow_other", None) => self.allow_other = true,
            ("nolock", None) => self.local_locks = true,
            ("default_permissions", None) => self.default_permissions = true,
            ("timeout", Some(value)) => self.timeout = Some(seconds(value)?),
            ("publish", Some(value)) => self.publish = Some(seconds(value)?),
            ("key", Some(value)) if value.starts_with('/') => self.key = Some(value.into()),
            ("key", _) => return Err(format!("\"{word}\": key=FILE wants an absolute path")),
            ("publish", None) => return Err("publish wants seconds: publish=5".into()),
            ("timeout", None) => return Err("timeout wants seconds: timeout=1".into()),
            _ if value.is_none() && Flags::default().say(name) => self.flags.push(name.to_owned()),
            _ if NOT_OURS.contains(&name) || name.starts_with("x-") || name.starts_with("X-") => {}
            _ => self.unknown.push(word.to_owned()),
        }
        Ok(())
    }

    /// The flags of a new mount.
    pub fn for_new(&self) -> Flags {
        let mut flags = Flags::default();
        for word in &self.flags {
            flags.say(word);
        }
        flags
    }
}

/// A time that a mount can be told.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(secs) if secs >= 0.0 && Duration::try_from_secs_f64(secs).is_ok() => Ok(secs),
        _ => Err(format!("\"{text}\" are no seconds, such as 1 or 0.5")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<Words, String> {
        let mut words = Words::default();
        words.add(list)?;
        words.all_known()?;
        Ok(words)
    }

    #[test]
    fn words_of_fstab() {
        let words =
            parse("rw,noexec,_netdev,nofail,x-systemd.automount,user=me,comment=a b,timeout=0.5,publish=2,key=/k,allow_other,ro")
                .unwrap();
        assert_eq!(words.flags, ["rw", "noexec", "ro"]);
        assert!(words.for_new().read_only() && words.allow_other && !words.remount);
        assert_eq!(
            (words.timeout, words.publish, words.key),
            (Some(0.5), Some(2.0), Some("/k".into()))
        );
        assert_eq!(parse("defaults,,").unwrap(), Words::default());
        assert!(parse("remount,rw").unwrap().remount);
        assert!(parse("ro,nolock").unwrap().local_locks);
        assert!(parse("default_permissions,ro").unwrap().default_permissions);
    }

    #[test]
    fn words_that_are_wrong() {
        for list in [
            "alow_other",
            "timeout",
            "timeout=-1",
            "timeout=x",
            "timeout=inf",
            "publish",
            "publish=-1",
            "key=k",
            "key",
            "ro=1",
        ] {
            assert!(parse(list).is_err(), "{list}");
        }
        let mut words = Words::default();
        words.add("ro,what=1,ever").unwrap();
        assert_eq!(words.unknown, ["what=1", "ever"]);
    }
}
