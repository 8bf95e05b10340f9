//! The messages of etcd's protocol that are used here, with the fields that are used; other fields are ignored. Written
//! by hand from etcd's `rpc.proto` and `kv.proto`, so that no `protoc` is needed.

use prost::bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

pub const TXN: &str = "/etcdserverpb.KV/Txn";
pub const PUT: &str = "/etcdserverpb.KV/Put";
pub const DELETE: &str = "/etcdserverpb.KV/DeleteRange";
pub const COMPACT: &str = "/etcdserverpb.KV/Compact";
pub const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub const STATUS: &str = "/etcdserverpb.Maintenance/Status";
pub const ALARM: &str = "/etcdserverpb.Maintenance/Alarm";
pub const DEFRAGMENT: &str = "/etcdserverpb.Maintenance/Defragment";

#[derive(Clone, PartialEq, Message)]
pub struct Header {
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct Range {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub limit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Put {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// The answer to a request without a result.
#[derive(Clone, PartialEq, Message)]
pub struct EmptyResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Delete {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub enum CompareResult {
    Equal = 0,
    Greater = 1,
    Less = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub enum Target {
    /// Number of writes to the key since it was made; 0 if it does not exist.
    Version = 0,
    Value = 3,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Operand {
    #[prost(int64, tag = "4")]
    Version(i64),
    #[prost(bytes = "bytes", tag = "7")]
    Value(Bytes),
}

/// Holds if the key's value is less than, equal to or greater than the operand.
#[derive(Clone, PartialEq, Message)]
pub struct Compare {
    #[prost(enumeration = "CompareResult", tag = "1")]
    pub result: i32,
    #[prost(enumeration = "Target", tag = "2")]
    pub target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub key: Bytes,
    #[prost(oneof = "Operand", tags = "4, 7")]
    pub operand: Option<Operand>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum KeyRequest {
    #[prost(message, tag = "1")]
    Range(Range),
    #[prost(message, tag = "2")]
    Put(Put),
    #[prost(message, tag = "3")]
    Delete(Delete),
}

#[derive(Clone, PartialEq, Message)]
pub struct RequestOp {
    #[prost(oneof = "KeyRequest", tags = "1, 2, 3")]
    pub request: Option<KeyRequest>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum KeyResponse {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(EmptyResponse),
    #[prost(message, tag = "3")]
    Delete(EmptyResponse),
}

#[derive(Clone, PartialEq, Message)]
pub struct ResponseOp {
    #[prost(oneof = "KeyResponse", tags = "1, 2, 3")]
    pub response: Option<KeyResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Txn {
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TxnDone {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Compact {
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Whether to answer only once the room is free.
    #[prost(bool, tag = "2")]
    pub physical: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Create {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    /// 1: no events of deleted keys.
    #[prost(int32, repeated, tag = "5")]
    pub filters: Vec<i32>,
    /// Whether long answers come in parts.
    #[prost(bool, tag = "8")]
    pub fragment: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub create: Option<Create>,
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchEvent {
    /// 0: a key was written.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchResponse {
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    /// If not 0, the history before this revision was compacted.
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<WatchEvent>,
}

/// Lists alarms (action 0), or ends one (action 2).
#[derive(Clone, PartialEq, Message)]
pub struct AlarmRequest {
    #[prost(int32, tag = "1")]
    pub action: i32,
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    /// 1: no space left.
    #[prost(int32, tag = "3")]
    pub alarm: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct AlarmMember {
    #[prost(uint64, tag = "1")]
    pub member_id: u64,
    #[prost(int32, tag = "2")]
    pub alarm: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Alarms {
    #[prost(message, repeated, tag = "2")]
    pub alarms: Vec<AlarmMember>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AskStatus {}

#[derive(Clone, PartialEq, Message)]
pub struct Status {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(string, tag = "2")]
    pub version: String,
    /// Number of the leading member; 0: no leader.
    #[prost(uint64, tag = "4")]
    pub leader: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the definition of the format gives them: field and kind in one byte, length, content.
    #[test]
    fn messages_are_the_bytes_of_the_protocol() {
        let compare = Compare {
            result: CompareResult::Less.into(),
            target: Target::Value.into(),
            key: Bytes::from_static(b"k"),
            operand: Some(Operand::Value(Bytes::from_static(b"v"))),
        };
        let put = Put {
            key: Bytes::from_static(b"k"),
            value: Bytes::from_static(b"v"),
        };
        let txn = Txn {
            compare: vec![compare],
            success: vec![RequestOp {
                request: Some(KeyRequest::Put(put)),
            }],
            failure: Vec::new(),
        };
        let compare = b"\x08\x02\x10\x03\x1a\x01k\x3a\x01v";
        let put = b"\x12\x06\x0a\x01k\x12\x01v";
        let mut bytes = vec![0x0a, compare.len() as u8];
        bytes.extend(compare);
        bytes.extend([0x12, put.len() as u8]);
        bytes.extend(put);
        assert_eq!(txn.encode_to_vec(), bytes);
    }

    #[test]
    fn fields_that_are_not_named_are_passed_over() {
        // Header: cluster 1, member 2, revision 3, term 4; then a field of a later version.
        let bytes = b"\x0a\x08\x08\x01\x10\x02\x18\x03\x20\x04\x10\x01\x52\x01x";
        let done = TxnDone::decode(&bytes[..]).unwrap();
        let header = Header {
            member_id: 2,
            revision: 3,
        };
        assert!(done.succeeded);
        assert_eq!(done.header, Some(header));
    }
}
