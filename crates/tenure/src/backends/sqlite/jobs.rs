//! What the thread of a client is asked to do.

use tokio::sync::oneshot;

use super::verbs::{VerbError, VerbResult, Verbs};
use crate::error::{Error, Result};

pub(super) enum Job {
    Verb(Box<dyn QueuedVerb>),
    /// See [`super::siblings`].
    Look,
    /// The log has become long.
    WriteBack,
    Close(oneshot::Sender<()>),
}

/// How a verb is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Changes nothing.
    Read,
    Write,
    /// Writes, also if its caller has gone.
    MustRun,
}

/// A verb that waits for its transaction, with its arguments and its caller.
pub(super) trait QueuedVerb: Send {
    /// What is being done, in errors.
    fn doing(&self) -> &'static str;
    fn kind(&self) -> Kind;
    fn is_abandoned(&self) -> bool;
    fn run(&mut self, verbs: &mut Verbs<'_>) -> rusqlite::Result<()>;
    /// Answers the caller, with what the verb said if the transaction went well.
    fn finish(self: Box<Self>, transaction: Result<()>);
}

/// A verb that was done, and how its transaction went.
pub(super) type Answered = (Box<dyn QueuedVerb>, Result<()>);

pub(super) struct Ask<T, F> {
    pub(super) kind: Kind,
    pub(super) doing: &'static str,
    pub(super) verb: F,
    pub(super) answer: Option<Result<T>>,
    pub(super) reply: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnMut(&mut Verbs<'_>) -> VerbResult<T> + Send> QueuedVerb for Ask<T, F> {
    fn doing(&self) -> &'static str {
        self.doing
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed() && self.kind != Kind::MustRun
    }

    fn run(&mut self, verbs: &mut Verbs<'_>) -> rusqlite::Result<()> {
        self.answer = Some(match (self.verb)(verbs) {
            Ok(answer) => Ok(answer),
            Err(VerbError::Refused(e)) => Err(e),
            Err(VerbError::Sqlite(e)) => return Err(e),
        });
        Ok(())
    }

    fn finish(self: Box<Self>, transaction: Result<()>) {
        let Self { answer, reply, .. } = *self;
        drop(reply.send(transaction.and_then(|()| answer.unwrap_or(Err(Error::Closed)))));
    }
}
