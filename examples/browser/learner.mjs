// A network that learns online: one call of its ONNX graph is one step of learning. No Python, no JAX, no foretrace.

const ARRAYS = { F32: Float32Array, I32: Int32Array };
const TYPES = { F32: "float32", I32: "int32" };

// A safetensors file: the length of a JSON header (8 bytes), the header, then the bytes of all arrays.
function readState(ort, buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  delete header.__metadata__;
  const state = {};
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(header)) {
    const [start, end] = data_offsets.map((offset) => offset + 8 + length);
    state[name] = new ort.Tensor(TYPES[dtype], new ARRAYS[dtype](buffer.slice(start, end)), shape);
  }
  return state;
}

export class Learner {
  // ort: the module onnxruntime-web; graph and state: contents of model.onnx and model.state.safetensors.
  static async load(ort, graph, state) {
    return new Learner(ort, await ort.InferenceSession.create(graph), readState(ort, state));
  }

  constructor(ort, session, state) {
    Object.assign(this, { ort, session, state });
    this.memory = Object.keys(state).filter((name) => name.startsWith("carry.h"));
    this.live = Object.fromEntries(this.memory.map((name) => [name, state[name]]));
  }

  feeds(x, y) {
    const { Tensor } = this.ort;
    const inputs = { x: new Tensor("float32", Float32Array.from(x), [x.length]) };
    return { ...this.state, ...inputs, y: new Tensor("int32", Int32Array.of(y), []) };
  }

  // Learn from a row and its class; return the class that was expected, and the loss, both from before the update.
  async learn(x, y) {
    const out = await this.session.run(this.feeds(x, y));
    for (const name in this.state) this.state[name] = out["next." + name];
    return { expected: best(out.outputs.data), loss: out.loss.data[0] };
  }

  // Answer for a row whose class is not known yet. The memory of the answers moves on; the network stays as it is.
  async predict(x) {
    const wanted = ["outputs", ...this.memory.map((name) => "next." + name)];
    const out = await this.session.run({ ...this.feeds(x, 0), ...this.live }, wanted);
    for (const name of this.memory) this.live[name] = out["next." + name];
    return best(out.outputs.data);
  }
}

const best = (values) => values.indexOf(Math.max(...values));

// Numbers of any unit become numbers around 0, by the mean and the deviation of those before.
class Scaler {
  count = 0;
  mean = [];
  square = [];

  scale(numbers) {
    this.count += 1;
    return numbers.map((number, i) => {
      const before = number - (this.mean[i] ??= number);
      this.mean[i] += before / this.count;
      this.square[i] = (this.square[i] ?? 0) + before * (number - this.mean[i]);
      const deviation = Math.sqrt(this.square[i] / this.count) || 1;
      return Math.max(-5, Math.min(5, (number - this.mean[i]) / deviation));
    });
  }
}

// Rows of a file: two numbers and a class, which is known at once.
export class Rows {
  scaler = new Scaler();
  last = null;

  constructor(learner) {
    this.learner = learner;
  }

  // Learn from a row; return its loss, and whether the network, and the last class again, were right.
  async push({ numbers, label }) {
    const { expected, loss } = await this.learner.learn(this.scaler.scale(numbers), label);
    const seen = { loss, right: expected === label, baseline: this.last === label };
    this.last = label;
    return seen;
  }
}

// A pointer: will it move to the right, `ahead` samples from now? The label of a sample comes that much later.
export class Pointer {
  scaler = new Scaler();
  last = null;
  waiting = [];

  constructor(learner, ahead = 8) {
    Object.assign(this, { learner, ahead });
  }

  // Take a sample [x, y]; return what is expected of the future, and how the answer of `ahead` samples ago did.
  async push(point) {
    const [before, now] = [this.last ?? point, (this.last = point)];
    const velocity = [now[0] - before[0], now[1] - before[1]];
    if (velocity[0] === 0 && velocity[1] === 0) return null; // nobody moves it
    const toTheRight = velocity[0] > 0 ? 1 : 0;
    let seen = null;
    if (this.waiting.length === this.ahead) {
      const then = this.waiting.shift();
      const { loss } = await this.learner.learn(then.x, toTheRight);
      seen = { loss, right: then.expected === toTheRight, baseline: then.toTheRight === toTheRight };
    }
    const x = this.scaler.scale(velocity);
    const expected = await this.learner.predict(x);
    this.waiting.push({ x, expected, toTheRight });
    return { expected, seen };
  }
}

// What a hand might draw: loops of a changing width, for a look without one.
export function drawn(sample) {
  const turn = sample / 5;
  const wide = 150 + 40 * Math.sin(sample / 90);
  return [300 + wide * Math.sin(turn), 200 + 0.7 * wide * Math.cos(turn) + 30 * Math.sin(sample / 40)];
}

// Rows of a CSV file: its first two columns of numbers, and its last column, of two classes.
export function readRows(text) {
  const [names, ...rows] = text.trim().split(/\r?\n/).map((line) => line.split(","));
  const isNumber = (field) => field !== undefined && field.trim() !== "" && Number.isFinite(Number(field));
  const columns = names.map((_, i) => i).filter((i) => i < names.length - 1 && rows.every((row) => isNumber(row[i])));
  const classes = [...new Set(rows.map((row) => row.at(-1)))].sort();
  if (columns.length < 2 || classes.length > 2) {
    throw new Error("the file needs two columns of numbers, and two classes in its last column");
  }
  const [first, second] = columns;
  return rows.map((row) => ({ numbers: [Number(row[first]), Number(row[second])], label: classes.indexOf(row.at(-1)) }));
}
