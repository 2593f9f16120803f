//! Every fault, planted against a small server that counts what reaches it.

mod answers;
mod connections;
mod server;
mod watches;
