//! Which groups are one user's alone, by the system's own files.

/// Whether a group has the user's name or number, and no other member. Many systems give each user such a group, and let it write. A
/// group that these files do not know is the user's by its number alone.
pub(super) fn is_private(user: u32, group: u32) -> bool {
    let read = |path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
    is_alone(user, group, &read("/etc/passwd"), &read("/etc/group"))
}

fn is_alone(user: u32, group: u32, users: &str, groups: &str) -> bool {
    let is = |field: Option<&&str>, number: u32| field.is_some_and(|field| field.parse() == Ok(number));
    let fields = |line| str::split(line, ':').collect::<Vec<_>>();
    let users: Vec<_> = users.lines().map(fields).collect();
    let (own, others): (Vec<_>, Vec<_>) = users.iter().partition(|fields| is(fields.get(2), user));
    let is_named = |name: Option<&&str>| name.is_some() && own.iter().any(|fields| fields.first() == name);
    let groups: Vec<_> = groups.lines().map(fields).filter(|fields| is(fields.get(2), group)).collect();
    let has_its_name = matches!(groups.as_slice(), [fields] if is_named(fields.first()));
    let members = groups.iter().filter_map(|fields| fields.get(3)).flat_map(|members| members.split(','));
    (user == group || has_its_name)
        && members.filter(|member| !member.is_empty()).all(|member| is_named(Some(&member)))
        && !others.iter().any(|fields| is(fields.get(3), group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_the_users_name_is_its_own_while_nobody_else_is_in_it() {
        let users = "root:x:0:0::/root:/bin/sh\nann:x:1001:1002::/home/ann:/bin/sh\nbob:x:1002:1005::/home/bob:/bin/sh\n";
        for (groups, due) in [
            ("ann:x:1002:\nstaff:x:50:bob\n", true),
            ("ann:x:1002:ann\n", true),
            ("ann:x:1002:bob\n", false),
            ("ann:x:1002:ann,bob\n", false),
            ("team:x:1002:\n", false),
            ("ann:x:1002:\nteam:x:1002:bob\n", false),
            ("", false),
            ("ann:x:1002", true),
            ("nonsense\n:::\n", false),
        ] {
            assert_eq!(is_alone(1001, 1002, users, groups), due, "{groups:?}");
        }
        let also_bobs = users.replace("1002:1005", "1002:1002");
        assert!(!is_alone(1001, 1002, &also_bobs, "ann:x:1002:\n"));
        assert!(!is_alone(7, 1002, users, "ann:x:1002:\n"));
    }

    #[test]
    fn a_group_of_the_users_number_is_its_own_while_nobody_else_is_in_it() {
        let users = "www:x:33:33::/:/bin/sh\ndeploy:x:44:44::/:/bin/sh\n";
        for (groups, due) in [
            ("www:x:33:\ndeploy:x:44:\n", true),
            ("www:x:33:www\n", true),
            ("web:x:33:\n", true),
            ("", true),
            ("www:x:33:deploy\n", false),
            ("www:x:33:www,deploy\n", false),
            ("www:x:33:\nalso:x:33:deploy\n", false),
            ("www:x:33:unknown\n", false),
        ] {
            assert_eq!(is_alone(33, 33, users, groups), due, "{groups:?}");
        }
        assert!(!is_alone(33, 33, &users.replace("44:44", "44:33"), "www:x:33:\n"));
        assert!(!is_alone(33, 33, &users.replace("44:44", "44:33"), ""));
        // Of a user whom these files do not know either, as in a container.
        assert!(is_alone(54_321, 54_321, users, "www:x:33:\n"));
        assert!(!is_alone(54_321, 54_321, users, "team:x:54321:deploy\n"));
    }
}
