// The learning of the page without a page: node check.mjs [FILE.csv | FILE.csv.gz]. Fails if the loss does not fall.

import { readFile } from "node:fs/promises";
import { gunzipSync } from "node:zlib";
import { drawn, Learner, Pointer, readRows, Rows } from "./learner.mjs";

const [file] = process.argv.slice(2);
const learner = await Learner.load(await readFile(new URL("model.wasm", import.meta.url)));

async function* results() {
  if (file === undefined) {
    const pointer = new Pointer(learner);
    for (let sample = 0; sample < 3000; sample += 1) {
      const answer = pointer.push(drawn(sample));
      if (answer?.seen) yield answer.seen;
    }
  } else {
    const bytes = await readFile(file);
    const rows = new Rows(learner);
    for (const row of readRows(String(file.endsWith(".gz") ? gunzipSync(bytes) : bytes))) yield rows.push(row);
  }
}

const mean = (seen, name) => seen.reduce((sum, one) => sum + Number(one[name]), 0) / seen.length;
const started = performance.now();
const losses = [];
let block = [];
let count = 0;
for await (const seen of results()) {
  block.push(seen);
  count += 1;
  if (block.length === 500) {
    losses.push(mean(block, "loss"));
    const [right, baseline] = [mean(block, "right"), mean(block, "baseline")];
    console.log(
      `row ${count}: loss ${losses.at(-1).toFixed(3)}, accuracy ${right.toFixed(3)}, no change ${baseline.toFixed(3)}`,
    );
    block = [];
  }
}
console.log(`${((performance.now() - started) / count).toFixed(2)} ms a row`);
if (!(losses.at(-1) < 0.8 * losses[0])) {
  console.error(`the loss does not fall: ${losses[0]} to ${losses.at(-1)}`);
  process.exit(1);
}
