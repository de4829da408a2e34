//! Data planes between network namespaces: a host, the concentrator and a server elsewhere. Root may make them.

mod attack;
mod carry;
mod netfilter;
mod place;
