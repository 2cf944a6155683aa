import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.lance.namespace.client.apache.ApiClient;
import org.lance.namespace.client.apache.ApiException;
import org.lance.namespace.client.apache.api.DataApi;
import org.lance.namespace.client.apache.api.IndexApi;
import org.lance.namespace.client.apache.api.NamespaceApi;
import org.lance.namespace.client.apache.api.TableApi;
import org.lance.namespace.model.CountTableRowsRequest;
import org.lance.namespace.model.DeleteFromTableRequest;
import org.lance.namespace.model.DescribeTableRequest;
import org.lance.namespace.model.ListTableIndicesRequest;
import org.lance.namespace.model.QueryTableRequest;
import org.lance.namespace.model.QueryTableRequestColumns;
import org.lance.namespace.model.QueryTableRequestFullTextQuery;
import org.lance.namespace.model.QueryTableRequestVector;
import org.lance.namespace.model.StringFtsQuery;

/** Reads through Bireme, and prints what it finds as JSON. Arguments: URL VECTOR. */
public final class Read {
    private static final String TABLE = "items";
    private static final String DELIMITER = "$";

    private Read() {}

    private static QueryTableRequest query(QueryTableRequestVector vector) {
        QueryTableRequestColumns columns = new QueryTableRequestColumns();
        columns.setColumnNames(List.of("id", "text"));
        QueryTableRequest query = new QueryTableRequest();
        query.setK(5);
        query.setVector(vector);
        query.setColumns(columns);
        return query;
    }

    public static void main(String[] arguments) throws Exception {
        ApiClient client = new ApiClient().setBasePath(arguments[0]).addDefaultHeader("x-api-key", "any");
        ObjectMapper json = new ObjectMapper();
        List<Float> numbers = Arrays.asList(json.readValue(arguments[1], Float[].class));
        QueryTableRequestVector vector = new QueryTableRequestVector();
        vector.setSingleVector(numbers);
        QueryTableRequestVector none = new QueryTableRequestVector();
        none.setSingleVector(List.of());
        TableApi tables = new TableApi(client);
        DataApi data = new DataApi(client);
        Map<String, Object> found = new LinkedHashMap<>();

        found.put("tables", new NamespaceApi(client).listTables(DELIMITER, DELIMITER, null, null, null).getTables());
        DescribeTableRequest described = new DescribeTableRequest();
        found.put("version", tables.describeTable(TABLE, described, DELIMITER, null, null, null).getVersion());
        CountTableRowsRequest counted = new CountTableRowsRequest();
        counted.setPredicate("id < 100");
        found.put("rows", data.countTableRows(TABLE, counted, DELIMITER));
        ListTableIndicesRequest indexed = new ListTableIndicesRequest();
        found.put(
                "indexes",
                new IndexApi(client).listTableIndices(TABLE, indexed, DELIMITER).getIndexes().stream()
                        .map(index -> index.getIndexName())
                        .toList());

        QueryTableRequest exact = query(vector);
        exact.setBypassVectorIndex(true);
        found.put("nearest", data.queryTable(TABLE, exact, DELIMITER));
        exact.setFilter("id < 300");
        found.put("filtered", data.queryTable(TABLE, exact, DELIMITER));
        QueryTableRequest ofIndex = query(vector);
        ofIndex.setNprobes(8);
        found.put("byIndex", data.queryTable(TABLE, ofIndex, DELIMITER));
        StringFtsQuery words = new StringFtsQuery();
        words.setQuery("puppy");
        QueryTableRequestFullTextQuery text = new QueryTableRequestFullTextQuery();
        text.setStringQuery(words);
        QueryTableRequest byWords = query(none);
        byWords.setFullTextQuery(text);
        found.put("words", data.queryTable(TABLE, byWords, DELIMITER));
        QueryTableRequest scan = query(none);
        scan.setFilter("id BETWEEN 10 AND 14");
        found.put("scanned", data.queryTable(TABLE, scan, DELIMITER));

        DeleteFromTableRequest deleted = new DeleteFromTableRequest();
        deleted.setPredicate("id = 1");
        try {
            data.deleteFromTable(TABLE, deleted, DELIMITER);
        } catch (ApiException refused) {
            found.put("refused", refused.getCode());
        }
        System.out.println(json.writeValueAsString(found));
    }
}
