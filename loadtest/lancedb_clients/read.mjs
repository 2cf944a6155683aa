// Reads through Bireme with LanceDB's client for Node, and prints what it finds as JSON.
// usage: node read.mjs URL FOLDER-OF-MODULES VECTOR
import { createRequire } from "node:module";

const [url, modules, vector] = process.argv.slice(2);
const { connect } = createRequire(`${modules}/`)("@lancedb/lancedb");

const db = await connect("db://default", { apiKey: "any", hostOverride: url });
const table = await db.openTable("items");
const ids = async (query) => (await query.toArray()).map((row) => Number(row.id));
const numbers = JSON.parse(vector);

const found = {
  tables: await db.tableNames(),
  rows: await table.countRows("id < 100"),
  nearest: await ids(table.query().nearestTo(numbers).nprobes(8).limit(5).select(["id"])),
  filtered: await ids(table.query().nearestTo(numbers).bypassVectorIndex().where("id < 300").limit(5)),
  words: (await table.query().fullTextSearch("puppy").limit(5).toArray()).map((row) => row.text),
  scanned: await ids(table.query().where("id BETWEEN 10 AND 14").select(["id"])),
  refused: await table.delete("id = 1").then(
    () => "nothing",
    (error) => error.message,
  ),
};
console.log(JSON.stringify(found));
