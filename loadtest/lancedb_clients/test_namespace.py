"""A generated client of the Lance Namespace specification reads through Bireme."""

import pyarrow as pa
import pytest
from lance_namespace_urllib3_client import ApiClient, Configuration
from lance_namespace_urllib3_client.api import DataApi, IndexApi, NamespaceApi, TableApi, TagApi
from lance_namespace_urllib3_client.exceptions import NotFoundException
from lance_namespace_urllib3_client.models import (
    CountTableRowsRequest,
    DescribeNamespaceRequest,
    DescribeTableIndexStatsRequest,
    DescribeTableRequest,
    ListTableIndicesRequest,
    QueryTableRequest,
    QueryTableRequestFullTextQuery,
    QueryTableRequestVector,
    StringFtsQuery,
    TableExistsRequest,
)
from lance_namespace_urllib3_client.models.query_table_request_columns import QueryTableRequestColumns


@pytest.fixture(scope="module")
def api(served):
    """The generated client."""
    return ApiClient(Configuration(host=served.url))


def rows(body: bytes) -> pa.Table:
    """Returns the rows of an Arrow file or stream."""
    try:
        return pa.ipc.open_file(pa.py_buffer(bytes(body))).read_all()
    except pa.ArrowInvalid:
        return pa.ipc.open_stream(pa.py_buffer(bytes(body))).read_all()


def test_lists_and_descriptions(api, local):
    oracle = local.open_table("items")
    assert NamespaceApi(api).describe_namespace("$", DescribeNamespaceRequest()).properties == {}
    assert TableApi(api).list_tables("$").tables == ["items", "pages", "plain"]
    described = TableApi(api).describe_table("items", DescribeTableRequest())
    assert described.version == oracle.version
    types = {field.name: field.type.type for field in described.var_schema.fields}
    assert (types["id"], types["text"], types["vector"]) == ("int64", "utf8", "fixed_size_list")
    TableApi(api).table_exists("items", TableExistsRequest())
    with pytest.raises(NotFoundException):
        TableApi(api).describe_table("none", DescribeTableRequest())
    assert DataApi(api).count_table_rows("items", CountTableRowsRequest(predicate="id < 90")) == oracle.count_rows("id < 90")
    indexes = IndexApi(api).list_table_indices("items", ListTableIndicesRequest()).indexes
    assert {it.index_name for it in indexes} == {it.name for it in oracle.list_indices()}
    stats = IndexApi(api).describe_table_index_stats("items", "id_idx", DescribeTableIndexStatsRequest())
    assert stats.num_unindexed_rows == 40
    versions = TableApi(api).list_table_versions("items").versions
    assert [it.version for it in versions] == [it["version"] for it in oracle.list_versions()]
    assert isinstance(TagApi(api).list_table_tags("items").tags, dict)


def test_queries(api, local, vector):
    exact = local.open_table("items").search(vector).bypass_vector_index().limit(5).to_arrow()
    request = QueryTableRequest(
        k=5,
        vector=QueryTableRequestVector(single_vector=vector),
        columns=QueryTableRequestColumns(column_names=["id"]),
        nprobes=8,
    )
    found = rows(DataApi(api).query_table("items", request))
    assert found["id"].to_pylist() == exact["id"].to_pylist()
    words = QueryTableRequestFullTextQuery(string_query=StringFtsQuery(query="puppy", columns=["text"]))
    request = QueryTableRequest(k=5, vector=QueryTableRequestVector(), full_text_query=words)
    found = rows(DataApi(api).query_table("items", request))
    assert all("puppy" in text for text in found["text"].to_pylist())
    request = QueryTableRequest(k=5, vector=QueryTableRequestVector(), filter="id = 17")
    assert rows(DataApi(api).query_table("items", request))["id"].to_pylist() == [17]
