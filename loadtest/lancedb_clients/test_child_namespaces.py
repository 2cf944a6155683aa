"""Tables that LanceDB made in namespaces other than the root are read through Bireme."""

import pytest
from lance_namespace_urllib3_client import ApiClient, Configuration
from lance_namespace_urllib3_client.api import DataApi, NamespaceApi, TableApi
from lance_namespace_urllib3_client.exceptions import NotFoundException
from lance_namespace_urllib3_client.models import CountTableRowsRequest, DescribeNamespaceRequest, NamespaceExistsRequest

EU = ["eu"]
OLD = ["eu", "old"]


def test_lists_are_those_of_lancedb(remote, local):
    for namespace in ([], EU, OLD):
        assert remote.list_namespaces(namespace).namespaces == local.list_namespaces(namespace).namespaces
        assert remote.list_tables(namespace).tables == local.list_tables(namespace).tables
    assert remote.table_names() == ["items", "pages", "plain"]


@pytest.mark.parametrize("namespace", [EU, OLD])
def test_tables_are_searched(remote, local, vector, namespace):
    table, oracle = (db.open_table("orders", namespace_path=namespace) for db in (remote, local))
    assert (table.count_rows(), table.schema) == (oracle.count_rows(), oracle.schema)
    for query in (vector, "puppy"):
        found, expected = (it.search(query).limit(7).to_arrow() for it in (table, oracle))
        assert sorted(found["id"].to_pylist()) == sorted(expected["id"].to_pylist())


def test_a_namespace_client(served):
    api = ApiClient(Configuration(host=served.url))
    assert NamespaceApi(api).list_namespaces("$").namespaces == ["eu"]
    assert NamespaceApi(api).list_namespaces("eu").namespaces == ["old"]
    assert TableApi(api).list_tables("eu").tables == ["orders"]
    properties = NamespaceApi(api).describe_namespace("eu", DescribeNamespaceRequest()).properties
    assert properties == {"owner": "sales"}
    assert DataApi(api).count_table_rows("eu$old$orders", CountTableRowsRequest()) == 50
    NamespaceApi(api).namespace_exists("eu$old", NamespaceExistsRequest())
    with pytest.raises(NotFoundException):
        NamespaceApi(api).namespace_exists("us", NamespaceExistsRequest())
