//! Whose directories the file may lie in. A user that can put files beside it could hand SQLite a journal by which it changes and deletes
//! files elsewhere; so could one that can replace a directory above it.

/// How the file is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Sharing {
    /// Not at all: everything is the user's own.
    #[default]
    None,
    /// The group of the directory.
    Group,
}

impl Sharing {
    /// The mode of files, and of pipes that others write to.
    pub(super) fn file(self) -> u32 {
        if self == Self::Group { 0o660 } else { 0o600 }
    }

    /// The mode of pipes that others only read.
    pub(super) fn life(self) -> u32 {
        if self == Self::Group { 0o640 } else { 0o600 }
    }

    /// The mode of the directory of pipes.
    pub(super) fn directory(self) -> u32 {
        if self == Self::Group { 0o2770 } else { 0o700 }
    }

    /// Whether a file or directory beside the file is one of ours, by its owners.
    pub(super) fn owns(self, seen: Seen, user: u32, group: u32) -> bool {
        match self {
            Self::None => seen.user == user,
            Self::Group => seen.group == group,
        }
    }
}

/// What the system says of a file or directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) mode: u32,
    /// Whether the user is alone in the group.
    pub(super) is_private: bool,
    /// Whether the bits of the group speak for a list of users and groups.
    pub(super) has_acl: bool,
}

impl Seen {
    /// Many systems give each user a group of its own, and let it write. Its number alone says nothing of who is in it.
    fn has_private_group(self) -> bool {
        (self.group == 0 || self.is_private) && !self.has_acl
    }

    fn allows(self, bits: u32) -> bool {
        self.mode & bits == bits
    }
}

/// Which of the directories lets another user in, and how. The first is that of the file, the next those above it. `nobody` stands for
/// the owners that a user namespace does not know.
pub(super) fn distrusted(user: u32, nobody: Option<u32>, sharing: Sharing, dirs: &[Seen]) -> Option<(usize, String)> {
    let first = *dirs.first()?;
    dirs.iter().enumerate().find_map(|(at, dir)| why_not(user, nobody, sharing, first, *dir, at > 0).map(|why| (at, why)))
}

fn why_not(user: u32, nobody: Option<u32>, sharing: Sharing, first: Seen, dir: Seen, above: bool) -> Option<String> {
    let is_shared = sharing == Sharing::Group;
    let is_known = dir.user == 0 || dir.user == user || is_shared && dir.user == first.user;
    let owner_is_trusted = is_known || above && Some(dir.user) == nobody;
    if !owner_is_trusted {
        return Some(format!("belongs to user {}, and this is user {user}", dir.user));
    }
    // Only its owner can replace what is in it. That is not enough beside the file, where new names count, too.
    if above && dir.allows(0o1000) {
        return None;
    }
    if dir.allows(0o002) {
        return Some("may be written to by everybody".to_owned());
    }
    if dir.allows(0o020) && !(is_shared && dir.group == first.group) && !dir.has_private_group() {
        return Some(format!("may be written to by group {}", dir.group));
    }
    // Else the files of one member would not be the group's.
    (is_shared && !above && !dir.allows(0o2070)).then(|| format!("is not one that group {} shares", dir.group))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: u32 = 1000;

    fn seen(user: u32, group: u32, mode: u32) -> Seen {
        Seen { user, group, mode, is_private: false, has_acl: false }
    }

    fn says(sharing: Sharing, dirs: &[Seen]) -> String {
        distrusted(ME, None, sharing, dirs).map_or_else(|| "fine".to_owned(), |(at, why)| format!("{at} {why}"))
    }

    #[test]
    fn a_directory_of_ones_own_or_of_root_is_fine_as_long_as_nobody_else_writes_there() {
        let root = seen(0, 0, 0o755);
        for (dir, due) in [
            (seen(ME, 100, 0o755), "fine"),
            (seen(0, 0, 0o755), "fine"),
            (seen(ME, ME, 0o775), "0 may be written to by group 1000"),
            (Seen { is_private: true, ..seen(ME, ME, 0o775) }, "fine"),
            (seen(ME, 0, 0o775), "fine"),
            (seen(ME, 100, 0o775), "0 may be written to by group 100"),
            (Seen { is_private: true, ..seen(ME, 100, 0o775) }, "fine"),
            (Seen { is_private: true, has_acl: true, ..seen(ME, 100, 0o775) }, "0 may be written to by group 100"),
            (Seen { has_acl: true, ..seen(ME, ME, 0o770) }, "0 may be written to by group 1000"),
            (seen(ME, ME, 0o777), "0 may be written to by everybody"),
            (seen(0, 0, 0o1777), "0 may be written to by everybody"),
            (seen(7, 7, 0o755), "0 belongs to user 7, and this is user 1000"),
        ] {
            assert_eq!(says(Sharing::None, &[dir, root]), due, "{dir:?}");
        }
    }

    #[test]
    fn above_it_the_sticky_bit_is_enough() {
        let dir = seen(ME, ME, 0o700);
        for (above, due) in [
            (seen(0, 0, 0o1777), "fine"),
            (seen(0, 50, 0o3775), "fine"),
            (seen(0, 50, 0o2775), "1 may be written to by group 50"),
            (seen(0, 0, 0o777), "1 may be written to by everybody"),
            (seen(7, 7, 0o755), "1 belongs to user 7, and this is user 1000"),
            (seen(7, 7, 0o1777), "1 belongs to user 7, and this is user 1000"),
        ] {
            assert_eq!(says(Sharing::None, &[dir, above]), due, "{above:?}");
        }
        // What a user namespace does not know is shown as nobody's.
        let unknown = [dir, seen(65534, 65534, 0o755)];
        assert!(distrusted(ME, Some(65534), Sharing::None, &unknown).is_none());
        assert!(distrusted(ME, None, Sharing::None, &unknown).is_some());
        assert!(distrusted(ME, Some(65534), Sharing::None, &unknown[1..]).is_some());
    }

    #[test]
    fn a_group_shares_a_directory_whose_files_are_all_the_groups() {
        let home = seen(7, 7, 0o711);
        for (dir, due) in [
            (seen(7, 300, 0o2770), "fine"),
            (seen(7, 300, 0o2775), "fine"),
            (seen(0, 300, 0o2770), "1 belongs to user 7, and this is user 1000"),
            (seen(7, 300, 0o770), "0 is not one that group 300 shares"),
            (seen(7, 300, 0o2750), "0 is not one that group 300 shares"),
            (seen(7, 300, 0o2777), "0 may be written to by everybody"),
        ] {
            assert_eq!(says(Sharing::Group, &[dir, home]), due, "{dir:?}");
        }
        assert_eq!(says(Sharing::Group, &[seen(7, 300, 0o2770), seen(0, 300, 0o775)]), "fine");
        assert_eq!(says(Sharing::Group, &[seen(7, 300, 0o2770), seen(0, 301, 0o775)]), "1 may be written to by group 301");
    }
}
