// A network that learns online, as WebAssembly made of C. No Python, no JAX, no foretrace.

export class Learner {
  // bytes: contents of model.wasm. It asks nothing of its surroundings.
  static async load(bytes) {
    const { instance } = await WebAssembly.instantiate(bytes, { wasi_snapshot_preview1: {} });
    return new Learner(instance.exports);
  }

  constructor(model) {
    this.model = model;
    model._initialize?.();
    model.begin();
  }

  view(address) {
    return new Float32Array(this.model.memory.buffer, address, 2);
  }

  // Learn from a row and its class; return the class that was expected, and the loss, both from before the update.
  learn(x, label) {
    this.view(this.model.inputs()).set(x);
    const loss = this.model.learn(label);
    return { expected: best(this.view(this.model.answers())), loss };
  }

  // Answer for the last of some rows whose classes are not known yet, from what was learned so far.
  predict(rows) {
    this.model.copy();
    for (const x of rows) {
      this.view(this.model.inputs()).set(x);
      this.model.predict();
    }
    return best(this.view(this.model.answers()));
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
  push({ numbers, label }) {
    const { expected, loss } = this.learner.learn(this.scaler.scale(numbers), label);
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
  push(point) {
    const [before, now] = [this.last ?? point, (this.last = point)];
    const velocity = [now[0] - before[0], now[1] - before[1]];
    if (velocity[0] === 0 && velocity[1] === 0) return null; // nobody moves it
    const toTheRight = velocity[0] > 0 ? 1 : 0;
    let seen = null;
    if (this.waiting.length === this.ahead) {
      const then = this.waiting.shift();
      const { loss } = this.learner.learn(then.x, toTheRight);
      seen = { loss, right: then.expected === toTheRight, baseline: then.toTheRight === toTheRight };
    }
    const x = this.scaler.scale(velocity);
    const expected = this.learner.predict([...this.waiting.map((one) => one.x), x]);
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
