//! Where the URL of the store comes from.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tenure::secret;

use crate::exit::{self, Failure};
use crate::output;

/// The variables that name the store. The program does not find them in its environment.
pub(crate) const URL: &str = "TENURE_URL";
pub(crate) const URL_FILE: &str = "TENURE_URL_FILE";

/// Where systemd puts the credentials of a service, and the name of ours.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
const CREDENTIAL: &str = "tenure.url";

/// The store when none is named: all processes of one user on one machine share it.
const DEFAULT_URL: &str = "sqlite:";

/// What was said of the store. A URL may hold a password: this has no `Debug` and is never printed.
pub(crate) enum Source {
    Url(String),
    File(PathBuf),
    Default,
}

impl Source {
    /// The command line comes first, then the environment, then the service's credentials.
    pub(crate) fn new(
        url: Option<String>,
        file: Option<PathBuf>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, String> {
        // An empty variable is how many tools unset one.
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        if let Some(url) = url.filter(|url| !url.is_empty()) {
            return Ok(Self::Url(url));
        }
        if let Some(file) = file {
            return Ok(Self::File(file));
        }
        match (variable(URL), variable(URL_FILE)) {
            (Some(_), Some(_)) => return Err(format!("{URL} and {URL_FILE} are both set; which of them is meant?")),
            (Some(url), None) => return url.into_string().map(Self::Url).map_err(|_| format!("{URL} is not UTF-8")),
            (None, Some(file)) => return Ok(Self::File(file.into())),
            (None, None) => {}
        }
        let credential = variable(CREDENTIALS).map(|dir| PathBuf::from(dir).join(CREDENTIAL));
        Ok(credential.filter(|file| may_exist(file)).map_or(Self::Default, Self::File))
    }

    /// The URL.
    pub(crate) fn url(self) -> Result<String, Failure> {
        let file = match self {
            Self::Url(url) => return Ok(url),
            Self::Default => return Ok(DEFAULT_URL.to_owned()),
            Self::File(file) => file,
        };
        if is_url(&file) {
            let problem = "what is given as a file of a URL is a URL; --url and TENURE_URL take one, --url-file and \
                           TENURE_URL_FILE the path of a file";
            return Err(Failure::new(exit::USAGE, problem));
        }
        let secret = secret::read(&file)?;
        if secret.is_exposed() {
            output::say(&format!("every user may read {}; chmod 600 changes that", file.display()));
        }
        if secret.text().contains('\n') {
            let problem = format!("the file {} has more than one line; allowed: one URL", file.display());
            return Err(Failure::new(exit::USAGE, problem));
        }
        Ok(secret.into_text())
    }
}

/// Whether a path is a URL by mistake, whose password no error about a file may show.
fn is_url(file: &Path) -> bool {
    let text = file.to_string_lossy();
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let is_word = scheme.trim().chars().all(|c| c.is_ascii_alphanumeric() || c == '+');
    // Also one with a scheme that is misspelt or another program's.
    rest.starts_with("//")
        || tenure::connect::schemes().any(|known| known.eq_ignore_ascii_case(scheme))
        || (is_word && rest.contains('@'))
}

/// A credential that is there and cannot be read is an error to report: another store would be a lock that no other client shares.
fn may_exist(file: &Path) -> bool {
    !std::fs::symlink_metadata(file).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_comes_before_the_environment() {
        let set = |names: &'static [&'static str]| move |name: &str| names.contains(&name).then(|| OsString::from("v"));
        let shown = |source: Result<Source, String>| match source {
            Ok(Source::Url(url)) => format!("url {url}"),
            Ok(Source::File(file)) => format!("file {}", file.display()),
            Ok(Source::Default) => "default".to_owned(),
            Err(e) => e,
        };
        let (url, file) = (|| Some("u".to_owned()), || Some(PathBuf::from("f")));
        assert_eq!(shown(Source::new(url(), None, set(&[URL, URL_FILE]))), "url u");
        assert_eq!(shown(Source::new(None, file(), set(&[URL]))), "file f");
        assert_eq!(shown(Source::new(None, None, set(&[URL]))), "url v");
        assert_eq!(shown(Source::new(Some(String::new()), None, set(&[URL_FILE]))), "file v");
        assert!(shown(Source::new(None, None, set(&[URL, URL_FILE]))).contains("both set"));
        assert_eq!(shown(Source::new(None, None, set(&[CREDENTIALS]))), "default", "there is no such file");
        assert_eq!(shown(Source::new(None, None, set(&[]))), "default");
    }
    #[test]
    fn a_url_in_place_of_a_file_is_not_shown() {
        for url in [
            "redis://u:SECRET@h",
            "sqlite:SECRET",
            "REDIS://u:SECRET@h",
            " rediss://u:SECRET@h",
            "postgresql://u:SECRET@h/d",
            "REDIS:u:SECRET@h",
            "sqlit:u:SECRET@h",
        ] {
            let Err(failure) = Source::File(url.into()).url() else { unreachable!("there is no such file") };
            assert!(!failure.message.contains("SECRET"), "{}", failure.message);
        }
    }
}
