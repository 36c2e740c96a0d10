//! Which file systems are of this machine alone. On others the kernel of another machine has files and locks too: neither
//! its pipes nor its boot id nor its shared memory mean anything here.

use crate::error::{Error, Result};

/// Known to be local, by their magic numbers. Others are refused: a list of those that are not would never be complete.
const LOCAL: [(u32, &str); 19] = [
    (0xef53, "ext2, ext3 or ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683e, "Btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x794c_7630, "overlayfs"),
    (0xf2f5_2010, "F2FS"),
    (0x2fc1_2fc1, "ZFS"),
    (0xca45_1a4e, "bcachefs"),
    (0x3153_464a, "JFS"),
    (0x5265_4973, "ReiserFS"),
    (0x3434, "NILFS2"),
    (0x2405_1905, "UBIFS"),
    (0x72b6, "JFFS2"),
    (0x482b, "HFS+"),
    (0x4858, "HFS+"),
    (0x7366_746e, "NTFS3"),
    (0xf15f, "eCryptfs"),
    (0x6175_6673, "aufs"),
];

/// Names for the messages about some that are not.
const OTHERS: [(u32, &str); 22] = [
    (0x6573_5546, "FUSE"),
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xfe53_4d42, "SMB2"),
    (0xff53_4d42, "CIFS"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x7375_7245, "Coda"),
    (0x564c, "NCP"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x2030_528e, "OrangeFS"),
    (0x786f_4256, "VirtualBox's"),
    (0xbacb_acbc, "VMware's"),
    (0xa501_fcf5, "VxFS"),
    (0x013c_d8fb, "PanFS"),
    (0xaad7_aaea, "PanFS"),
];

/// Refuses what is not known to be local, and says how to use it all the same.
pub(super) fn check(asked: &str, magic: i128) -> Result<()> {
    // Sign-extended on some systems.
    let magic = u32::try_from(magic & 0xffff_ffff).unwrap_or(0);
    let named = |list: &[(u32, &'static str)]| list.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name);
    if named(&LOCAL).is_some() {
        return Ok(());
    }
    let which = named(&OTHERS).map_or_else(|| format!("of type {magic:#x}"), |name| format!("({name})"));
    let problem = format!(
        "is on a file system {which} that is not known to be this machine's alone; on others, pipes and boot ids mean nothing"
    );
    let allowed = "a file on a local disk or tmpfs, or filesystem=any for one that this machine alone uses";
    Err(Error::config(asked, problem, allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_to_be_local_is_taken_also_when_sign_extended() {
        for (magic, _) in LOCAL {
            assert!(check("it", magic.into()).is_ok(), "{magic:#x}");
            assert!(check("it", magic.cast_signed().into()).is_ok(), "{magic:#x}");
        }
        for (magic, name) in OTHERS {
            let error = check("it", magic.cast_signed().into()).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("filesystem=any"), "{error}");
        }
        let error = check("it", 0xbeef).unwrap_err().to_string();
        assert!(error.contains("of type 0xbeef"), "{error}");
    }
}
