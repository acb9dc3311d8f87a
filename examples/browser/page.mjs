// What the page shows: the pointer, the prediction, and how accuracy climbs. The learning itself is in learner.mjs.

import { drawn, Learner, Pointer, readRows, Rows } from "./learner.mjs";

const PAUSE = 33; // milliseconds between samples of the pointer
const at = (id) => document.getElementById(id);
const [field, chart] = [at("field"), at("chart")];
let [position, drawing, reading, sample] = [null, location.hash === "#demo", false, 0];
let [learner, pointer, history, spent] = [null, null, [], 0];
const trail = [];

async function begin() {
  const file = await fetch("model.wasm");
  if (!file.ok) throw new Error("there is no model.wasm here: run python write.py");
  learner = await Learner.load(await file.arrayBuffer());
  [pointer, history, spent] = [new Pointer(learner), [], 0];
}

function score(seen) {
  history.push(seen);
  const last = history.slice(-200);
  const mean = (name) => last.reduce((sum, one) => sum + Number(one[name]), 0) / last.length;
  for (const [id, name] of [["network", "right"], ["baseline", "baseline"]]) {
    seen[`mean ${name}`] = mean(name);
    at(id).textContent = `${(100 * seen[`mean ${name}`]).toFixed(1)} %`;
  }
  at("loss").textContent = mean("loss").toFixed(3);
  at("status").textContent = `${history.length} learned`;
  at("speed").textContent = `${((1000 * spent) / history.length).toFixed(0)} µs for learning and answering once.`;
}

function drawChart() {
  const context = chart.getContext("2d");
  context.clearRect(0, 0, chart.width, chart.height);
  for (const [name, color] of [["mean baseline", "gray"], ["mean right", "royalblue"]]) {
    context.strokeStyle = color;
    context.beginPath();
    history.forEach((seen, i) => {
      context.lineTo((i / Math.max(300, history.length)) * chart.width, (1 - seen[name]) * (chart.height - 4) + 2);
    });
    context.stroke();
  }
}

function drawField(point, expected) {
  const context = field.getContext("2d");
  context.clearRect(0, 0, field.width, field.height);
  context.fillStyle = "royalblue";
  trail.push(point);
  trail.splice(0, trail.length - 40);
  trail.forEach(([x, y], i) => context.fillRect(x - i / 10, y - i / 10, i / 5, i / 5));
  if (expected !== null) {
    context.font = "24px sans-serif";
    context.fillText(expected === 1 ? "soon to the right →" : "← soon to the left", 10, 24);
  }
}

function timed(work) {
  const started = performance.now();
  const result = work();
  spent += performance.now() - started;
  return result;
}

function follow() {
  const point = drawing ? drawn(sample++) : position;
  if (point !== null && !reading) {
    const answer = timed(() => pointer.push(point));
    if (answer?.seen) score(answer.seen);
    drawField(point, answer?.expected ?? null);
    if (history.length % 10 === 0) drawChart();
  }
  setTimeout(follow, PAUSE);
}

async function read(file) {
  reading = true;
  try {
    const zipped = file.name.endsWith(".gz");
    const stream = zipped ? file.stream().pipeThrough(new DecompressionStream("gzip")) : file.stream();
    const rows = readRows(await new Response(stream).text());
    await begin();
    const learning = new Rows(learner);
    for (const [i, row] of rows.entries()) {
      score(timed(() => learning.push(row)));
      if (i % 100 === 99) {
        drawChart();
        await new Promise((resolve) => setTimeout(resolve)); // let the page be drawn
      }
    }
    at("status").textContent = `${file.name}: ${rows.length} rows learned`;
  } catch (error) {
    at("status").textContent = `${file.name}: ${error.message}`;
    reading = false;
  }
}

field.addEventListener("pointermove", (event) => {
  const scale = field.width / field.clientWidth;
  [position, drawing] = [[event.offsetX * scale, event.offsetY * scale], false];
});
field.addEventListener("dragover", (event) => event.preventDefault());
field.addEventListener("drop", (event) => {
  event.preventDefault();
  read(event.dataTransfer.files[0]);
});
at("draw").addEventListener("click", () => (drawing = !drawing));
at("again").addEventListener("click", async () => {
  reading = false;
  await begin();
});

try {
  await begin();
  at("status").textContent = "ready";
  follow();
} catch (error) {
  at("status").textContent = error.message;
}
