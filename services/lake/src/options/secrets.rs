//! Secret options of object stores, each in a file of its own in one folder: the file's name is the option's name, and
//! its text is the option's value. A Secret that Kubernetes mounts is such a folder.
//!
//! The folder is read again while its options are in use, so that keys can be replaced without a restart. If the folder
//! is faulty at that time, the old values stay in use. Values never appear in messages or debug output.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{Error as IoError, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use lance::Result as LanceResult;
use lance_io::object_store::{StorageOptionsAccessor, StorageOptionsProvider};

use crate::error::{LakeError, Result};
use crate::options::names::check_storage;

/// The time after which a store's client reads the folder again, at its next request. A credential that is replaced has
/// to stay valid for this long.
const REREAD: Duration = Duration::from_secs(30);

/// The maximum size of a file. The longest values, keys of Google's service accounts, have some 2 KiB.
const FILE_MAX: u64 = 64 << 10;

/// The number of attempts to read the folder while it changes.
const ATTEMPTS: usize = 5;

/// The options in one folder.
#[derive(Clone)]
pub struct SecretOptions(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    /// The names of the options that are configured elsewhere. The folder may not have them.
    taken: HashSet<String>,
    reread: Duration,
    state: Mutex<State>,
}

struct State {
    values: HashMap<String, String>,
    /// The last error that was logged.
    fault: Option<String>,
}

/// Omits the values.
impl fmt::Debug for SecretOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretOptions").field("folder", &self.0.folder).finish_non_exhaustive()
    }
}

impl SecretOptions {
    /// Reads `folder`. `storage` has the options that are configured elsewhere.
    ///
    /// # Errors
    /// [`LakeError::SecretOption`] if the folder or one of its files can't be read, if a file is empty, too long or not
    /// UTF-8, or if its option is in `storage` too; [`LakeError::UnknownOption`] if no object store has the option;
    /// [`LakeError::UserInEndpoint`] for an endpoint with a user name or password.
    pub fn read(folder: &Path, storage: &HashMap<String, String>) -> Result<Self> {
        Self::reread_after(folder, storage, REREAD)
    }

    fn reread_after(
        folder: &Path,
        storage: &HashMap<String, String>,
        reread: Duration,
    ) -> Result<Self> {
        let taken = storage.keys().map(|name| name.to_ascii_lowercase()).collect();
        let values = unchanging(folder, &taken)?;
        let state = Mutex::new(State { values, fault: None });
        Ok(Self(Arc::new(Inner { folder: folder.to_owned(), taken, reread, state })))
    }

    /// Returns the current values.
    pub(crate) fn values(&self) -> HashMap<String, String> {
        self.state().values.clone()
    }

    /// Returns the accessor through which a store's client gets `options` and the secrets. The client asks again after
    /// [`REREAD`], and the folder is then read anew.
    pub(crate) fn accessor(&self, options: HashMap<String, String>) -> StorageOptionsAccessor {
        let initial = self.expiring(&options);
        let provider = Rereading { secrets: self.clone(), options };
        StorageOptionsAccessor::with_initial_and_provider(initial, Arc::new(provider))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `options` and the current values of the secrets, which Lance uses until it is time to read the folder
    /// again.
    fn expiring(&self, options: &HashMap<String, String>) -> HashMap<String, String> {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let expires = (since_epoch + self.0.reread).as_millis().to_string();
        let mut all = options.clone();
        all.extend(self.values());
        all.extend([
            ("expires_at_millis".to_owned(), expires),
            ("refresh_offset_millis".to_owned(), "0".to_owned()),
        ]);
        all
    }

    /// Reads the folder again. If it is faulty, logs why and keeps the current values.
    async fn reread(&self) {
        let inner = Arc::clone(&self.0);
        let read = tokio::task::spawn_blocking(move || unchanging(&inner.folder, &inner.taken));
        // A panic has been logged.
        let Ok(read) = read.await else { return };
        let mut state = self.state();
        match read {
            Ok(values) if values == state.values => state.fault = None,
            Ok(values) => {
                *state = State { values, fault: None };
                tracing::info!(folder = %self.0.folder.display(), "new secrets of object stores are in use");
            }
            Err(error) => {
                let fault = error.to_string();
                if state.fault.as_ref() != Some(&fault) {
                    tracing::warn!(error = %fault, "new secrets of object stores are not used");
                    state.fault = Some(fault);
                }
            }
        }
    }
}

/// The options of one store's client.
struct Rereading {
    secrets: SecretOptions,
    options: HashMap<String, String>,
}

/// Omits the options, some of which may be secret.
impl fmt::Debug for Rereading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.secrets.fmt(f)
    }
}

#[async_trait]
impl StorageOptionsProvider for Rereading {
    async fn fetch_storage_options(&self) -> LanceResult<Option<HashMap<String, String>>> {
        self.secrets.reread().await;
        Ok(Some(self.secrets.expiring(&self.options)))
    }

    fn provider_id(&self) -> String {
        format!("{:?}", self.secrets)
    }
}

/// Reads the folder until two reads in a row return the same values. A read during a change could combine an old key id
/// with a new key, which a store would refuse.
fn unchanging(folder: &Path, taken: &HashSet<String>) -> Result<HashMap<String, String>> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let read = read_folder(folder);
        match (read, last) {
            (Ok(read), Some(last)) if read == last => {
                check_storage(&read)?;
                return match read.keys().find(|name| taken.contains(*name)) {
                    Some(name) => {
                        let why =
                            format!("the option `{name}` is in `[storage]` too; leave one out");
                        Err(fault(&folder.join(name), &IoError::new(ErrorKind::InvalidData, why)))
                    }
                    None => Ok(read),
                };
            }
            (Ok(read), _) => last = Some(read),
            // The folder may have been replaced while it was read.
            (Err(error), Some(_)) if is_missing(&error) => last = None,
            (Err(error), _) => return Err(error),
        }
    }
    Err(fault(
        folder,
        &IoError::new(ErrorKind::InvalidData, "its files change while they are read"),
    ))
}

fn read_folder(folder: &Path) -> Result<HashMap<String, String>> {
    let mut options = HashMap::new();
    for entry in std::fs::read_dir(folder).map_err(|error| fault(folder, &error))? {
        let entry = entry.map_err(|error| fault(folder, &error))?;
        let name = entry.file_name().to_string_lossy().to_ascii_lowercase();
        // Kubernetes keeps the files themselves in hidden folders such as `..data`, and links to them.
        if !name.starts_with('.') {
            let path = entry.path();
            let value = read_value(&path).map_err(|error| fault(&path, &error))?;
            options.insert(name, value);
        }
    }
    Ok(options)
}

fn read_value(path: &Path) -> std::io::Result<String> {
    if std::fs::metadata(path)?.len() > FILE_MAX {
        return Err(IoError::new(
            ErrorKind::FileTooLarge,
            format!("it has more than {FILE_MAX} bytes"),
        ));
    }
    let value = std::fs::read_to_string(path)?.trim().to_owned();
    if value.is_empty() {
        return Err(IoError::new(
            ErrorKind::InvalidData,
            "it is empty; write the value of the option",
        ));
    }
    Ok(value)
}

fn fault(path: &Path, error: &IoError) -> LakeError {
    LakeError::SecretOption { path: path.to_owned(), kind: error.kind(), why: error.to_string() }
}

fn is_missing(error: &LakeError) -> bool {
    matches!(error, LakeError::SecretOption { kind: ErrorKind::NotFound, .. })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::lake::Lake;
    use crate::options::LakeOptions;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn read(folder: &tempfile::TempDir) -> Result<SecretOptions> {
        let storage = HashMap::from([("aws_region".to_owned(), "x".to_owned())]);
        SecretOptions::read(folder.path(), &storage)
    }

    #[test]
    fn files_are_options_by_either_spelling_of_their_names() {
        let files = [("AWS_ACCESS_KEY_ID", "id\n"), ("aws_secret_access_key", " key "), (".x", "")];
        let folder = folder(&files);
        std::fs::create_dir(folder.path().join("..data")).unwrap();
        let secrets = read(&folder).unwrap();
        let options = [("aws_access_key_id", "id"), ("aws_secret_access_key", "key")];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(secrets.values(), HashMap::from(options));
        assert!(!format!("{secrets:?}").contains("key"), "values must not be shown");
    }

    #[test]
    fn faulty_folders_are_refused_with_the_file_at_fault() {
        let refused = |files: &[(&str, &str)], why: &str| {
            let error = read(&folder(files)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        refused(&[("AWS_ACESS_KEY_ID", "x")], "aws_access_key_id");
        refused(&[("AWS_ACCESS_KEY_ID", "\n")], "AWS_ACCESS_KEY_ID: it is empty");
        refused(&[("AWS_REGION", "y")], "aws_region` is in `[storage]` too; leave one out");
        let long = "x".repeat(FILE_MAX as usize + 1);
        refused(&[("AWS_ACCESS_KEY_ID", &long)], "it has more than 65536 bytes");
        let missing = SecretOptions::read(Path::new("/nowhere/secrets"), &HashMap::new());
        let error = missing.unwrap_err();
        assert!(is_missing(&error) && error.to_string().contains("/nowhere/secrets"), "{error}");
    }

    #[tokio::test]
    async fn changed_files_are_used_and_faulty_ones_change_nothing() {
        let folder = folder(&[("AWS_ACCESS_KEY_ID", "old"), ("AWS_SECRET_ACCESS_KEY", "a")]);
        let always = Duration::ZERO;
        let secrets = SecretOptions::reread_after(folder.path(), &HashMap::new(), always).unwrap();
        let options = HashMap::from([("aws_region".to_owned(), "x".to_owned())]);
        let accessor = secrets.accessor(options);
        let get = async |name: &str| accessor.get_storage_options().await.unwrap().0.remove(name);
        let write = |id: &str| std::fs::write(folder.path().join("AWS_ACCESS_KEY_ID"), id).unwrap();
        assert_eq!(get("aws_access_key_id").await.as_deref(), Some("old"));
        write("new");
        assert_eq!(get("aws_access_key_id").await.as_deref(), Some("new"));
        write("");
        assert_eq!(get("aws_access_key_id").await.as_deref(), Some("new"));
        assert_eq!(get("aws_region").await.as_deref(), Some("x"));
        assert_eq!(secrets.values()["aws_access_key_id"], "new");
    }

    /// Answers every request with status 404. Returns the endpoint, and the headers of all requests so far.
    async fn server() -> (String, Arc<Mutex<String>>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(String::new()));
        let log = Arc::clone(&received);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let log = Arc::clone(&log);
                tokio::spawn(async move {
                    let mut request = [0; 8192];
                    while let Ok(read @ 1..) = stream.read(&mut request).await {
                        log.lock().unwrap().push_str(&String::from_utf8_lossy(&request[..read]));
                        let answer = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
                        stream.write_all(answer).await.unwrap();
                    }
                });
            }
        });
        (endpoint, received)
    }

    #[tokio::test]
    async fn requests_are_signed_with_the_current_key() {
        let (endpoint, received) = server().await;
        let folder = folder(&[("AWS_ACCESS_KEY_ID", "first"), ("AWS_SECRET_ACCESS_KEY", "a")]);
        let storage = [("aws_endpoint", endpoint.as_str()), ("aws_region", "us-east-1")];
        let storage = storage.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let secrets = SecretOptions::reread_after(folder.path(), &storage, Duration::ZERO).unwrap();
        let lake = Lake::new(LakeOptions {
            storage,
            storage_secrets: Some(secrets),
            ..Default::default()
        });
        for key in ["first", "second"] {
            std::fs::write(folder.path().join("AWS_ACCESS_KEY_ID"), key).unwrap();
            received.lock().unwrap().clear();
            lake.open("s3://bucket/table").await.unwrap_err();
            let received = received.lock().unwrap();
            let credential = format!("Credential={key}/");
            assert!(received.contains(&credential), "{key}: {received}");
            assert_eq!(
                received.matches("Credential=").count(),
                received.matches(&credential).count()
            );
        }
    }
}
