// Reads with LanceDB's client for Node, and prints what it finds as JSON: through Bireme, or locally, as the oracle.
// usage: node read.mjs URL-OR-FOLDER FOLDER-OF-MODULES VECTOR TAG
import { createRequire } from "node:module";

const [place, modules, vector, tag] = process.argv.slice(2);
const lancedb = createRequire(`${modules}/`)("@lancedb/lancedb");
const { BooleanQuery, BoostQuery, MatchQuery, MultiMatchQuery, Occur, Operator, PhraseQuery, rerankers } = lancedb;

const isRemote = place.startsWith("http");
const db = isRemote
  ? await lancedb.connect("db://default", { apiKey: "any", hostOverride: place })
  : await lancedb.connect(place);
const table = await db.openTable("items");
const pages = await db.openTable("pages");
const numbers = JSON.parse(vector);
const other = numbers.map((it) => -it);

// What is compared of rows: their ids, which query vector found them, and their distances, scores or relevances.
const rows = async (query) => {
  const found = await query.toArray();
  const measure = ["_relevance_score", "_distance", "_score"].find((it) => found[0]?.[it] !== undefined);
  return {
    ids: found.map((row) => Number(row.id)),
    queries: found.map((row) => row.query_index ?? 0),
    measures: measure === undefined ? [] : found.map((row) => row[measure]),
  };
};
const plain = (value) => JSON.parse(JSON.stringify(value, (_, it) => (typeof it === "bigint" ? Number(it) : it)));

const near = () => table.query().nearestTo(numbers);
const exact = () => near().bypassVectorIndex();
const words = (query) => rows(table.query().fullTextSearch(query).limit(30).select(["id", "_score"]));
const match = (text, options) => new MatchQuery(text, "text", options);

const nearest = await exact().limit(30).toArray();
const versions = async (version) => {
  await table.checkout(version);
  const at = [await table.version(), await table.countRows()];
  await table.checkoutLatest();
  return at;
};

const found = {
  tables: await db.tableNames(),
  columns: (await table.schema()).fields.map((field) => `${field.name}: ${field.type}`),
  counts: [await table.countRows(), await table.countRows("id < 100")],
  indexes: (await table.listIndices()).map((it) => it.name).sort(),
  versions: (await table.listVersions()).map((it) => it.version),
  tags: Object.entries(await (await table.tags()).list()).map(([name, it]) => [name, it.version]),
  tagged: await (await table.tags()).getVersion(tag),
  ofVersion: await versions(1),
  ofTag: await versions(tag),
  latest: [await table.version(), await table.countRows()],
  branches: Object.keys(await (await table.branches()).list()),
  expressions: plain(
    await table.query().select({ twice: "id * 2", loud: "upper(text)" }).where("id < 5").toArray(),
  ),
  nested: plain(await table.query().select(["place.x", "id"]).where("id < 5").toArray()),
  offsets: (await rows(table.takeOffsets([2500, 7, 0]))).ids.sort(),
  rowIds: (await rows(table.takeRowIds((await exact().withRowId().limit(3).toArray()).map((row) => row._rowid)))).ids.sort(),
  // Searches whose rows and distances are the oracle's own.
  searches: {
    exact: await rows(exact().limit(5)),
    byIndex: await rows(near().nprobes(8).refineFactor(20).limit(5)),
    cosine: await rows(exact().distanceType("cosine").limit(5)),
    offset: await rows(exact().limit(4).offset(6)),
    range: await rows(exact().distanceRange(nearest[5]._distance, nearest[20]._distance).limit(30)),
    before: await rows(exact().where("id < 300").limit(5)),
    after: await rows(exact().where("id < 1500").postfilter().limit(20)),
    several: await rows(exact().addQueryVector(other).limit(3)),
    lateInteraction: await rows(pages.query().nearestTo(numbers).addQueryVector(other).distanceType("cosine").bypassVectorIndex().limit(7)),
    ordered: await rows(exact().limit(20).orderBy({ columnName: "id", ascending: false })),
    scanned: await rows(table.query().where("id BETWEEN 10 AND 14").select(["id"])),
    scannedInOrder: await rows(
      table.query().where("id < 500").orderBy([{ columnName: "price", nullsFirst: true }, { columnName: "id" }]).limit(60),
    ),
    skipped: await rows(table.query().limit(5).offset(20)),
  },
  // Searches of which the measures are the oracle's own: rows that tie may be in another order.
  words: {
    plain: await words("puppy"),
    every: await words(match("oak river", { operator: Operator.And })),
    fuzzy: await words(match("garde", { fuzziness: 1 })),
    fuzzyAfterPrefix: await words(match("willlow", { fuzziness: 2, prefixLength: 3 })),
    phrase: await words(new PhraseQuery("oak river", "text")),
    loosePhrase: await words(new PhraseQuery("oak river", "text", { slop: 1 })),
    boosted: await words(new BoostQuery(match("oak"), match("river"), { negativeBoost: 0.3 })),
    // Without boosts, which the Lance in this client does not apply to rows that no index covers.
    severalColumns: await words(new MultiMatchQuery("garden number5", ["text"])),
    boolean: await words(
      new BooleanQuery([
        [Occur.Must, match("oak")],
        [Occur.MustNot, match("river")],
        [Occur.Should, match("number13")],
      ]),
    ),
    filtered: await rows(table.query().fullTextSearch("puppy").where("id < 400").limit(30)),
    hybrid: await rows(
      exact().fullTextSearch("puppy garden").rerank(await rerankers.RRFReranker.create()).limit(8),
    ),
  },
};
if (isRemote) {
  found.refused = await table.delete("id = 1").then(
    () => "nothing",
    (error) => error.message,
  );
}
console.log(JSON.stringify(found));
