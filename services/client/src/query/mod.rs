//! The client of a query node: a typed call for each rpc, rows as record batches, errors as faults.

mod append;
mod batch_size;
mod call;
mod connect;
mod default_columns;
mod keys;
mod lasting_lookup;
mod lookup;
mod presence;
mod rows;
mod take;

pub use append::{Append, KeyCounts, append_columns, without_nulls};
pub use call::{Found, Gotten, GottenRows, TableDescription, UnreadKeys};
pub use connect::QueryClient;
pub use default_columns::columns_to_append;
pub use keys::keys_of;
pub use lookup::{LookedUp, Lookup, LookupClient};
pub use presence::{Presence, presence_of};
pub use rows::read_rows;
pub use take::{Taken, TakenStream};
pub use wire::query::lookup_batch::Keys;
pub use wire::query::{
    CountRequest, CountResponse, GetRequest, ListTablesResponse, ListTagsRequest, ListTagsResponse,
    ListVersionsRequest, ListVersionsResponse, LookupOpen, NamedExpression, NodePlacement,
    OnMissing, OrderBy, PlacementRequest, PlacementResponse, RowFormat, SearchRequest, Stage,
    StatusResponse, TableSummary, Tag, TakeRequest, Text, TextBoolean, TextBoost, TextColumn,
    TextCombinedFields, TextMatch, TextMultiMatch, TextPhrase, TextQuery, TuneProgress,
    TuneRequest, Vector, Vectors, VersionSummary, WarmProgress, WarmRequest, search_request::By,
    text_query::Kind as TextKind,
};
