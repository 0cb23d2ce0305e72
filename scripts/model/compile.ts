import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
} from "node:fs";
import { basename, join } from "node:path";
import { execPath } from "node:process";
import { fileURLToPath } from "node:url";
import { compileFunction } from "node:vm";
import { builtins } from "./builtins.ts";
import type { QuintSet, Value } from "./values.ts";

/*
 * Compiles a model in Quint to JavaScript, which runs it about 40 times as fast as Quint's own simulator: fast
 * enough to visit all states of a small one. Quint parses it and checks its types and effects; this reads what it made
 * of that, and knows the operators that the model uses.
 *
 * The names of definitions are taken to be unique among the modules.
 */

/** The parts of Quint's intermediate representation that the model needs. */
type Expression =
  | { readonly kind: "int" | "bool" | "str"; readonly value: number | boolean | string }
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "app"; readonly opcode: string; readonly args: readonly Expression[] }
  | Lambda
  | { readonly kind: "let"; readonly opdef: Definition; readonly expr: Expression };

interface Lambda {
  readonly kind: "lambda";
  readonly params: readonly { readonly name: string }[];
  readonly expr: Expression;
}

interface Definition {
  readonly kind: "def";
  readonly name: string;
  readonly qualifier: string;
  readonly expr: Expression;
}

type Declaration =
  | Definition
  | { readonly kind: "var"; readonly name: string }
  | { readonly kind: "import" | "typedef" };

interface Module {
  readonly declarations: readonly Declaration[];
}

/** The values of the model's variables. */
export type State = Readonly<Record<string, Value>>;

/** An action with its arguments, as a step took it. */
export interface Taken {
  readonly action: string;
  readonly args: readonly Value[];
}

/** Returns which of `count` alternatives a step takes. */
export type Choose = (count: number) => number;

/** What the compiled code reads and writes while an action runs. */
interface Run {
  state: State;
  next: Record<string, Value>;
  choose: Choose;
  taken: Taken | undefined;
}

type Compiled = Readonly<Record<string, (...args: Value[]) => Value>>;

export class Model {
  readonly #run: Run = { state: {}, next: {}, choose: () => 0, taken: undefined };
  readonly #definitions: Compiled;

  /**
   * Compiles the modules that `file` consists of, and those that it imports. `constants` replace pure values. Throws with
   * what Quint reports.
   */
  constructor(file: string, constants: Readonly<Record<string, number>> = {}) {
    const modules = parse(file);
    const declarations = modules.flatMap((module) => module.declarations);
    const code = generate(declarations.map((declaration) => replaced(declaration, constants)));
    const params = ["run", "builtins", "pick", "lazy"];
    const link = compileFunction(code, params) as (...args: unknown[]) => Compiled;
    const pick = (set: Value): readonly Value[] => [...(set as QuintSet).byId.values()];
    this.#definitions = link(this.#run, builtins, pick, lazy);
  }

  /** The state that an action begins with. */
  init(action: string, ...args: Value[]): State {
    const state = this.act({}, action, args);
    if (state === undefined) throw new Error(`${action} is not enabled.`);
    return state;
  }

  /** The state after an action with these arguments; undefined if it is not enabled. It must not choose anything. */
  act(from: State, action: string, args: readonly Value[]): State | undefined {
    return this.#take(from, action, args, () => 0);
  }

  /** The state after the model's `step`, in which `choose` decides; undefined if that is not enabled. */
  step(from: State, choose: Choose): State | undefined {
    return this.#take(from, "step", [], choose);
  }

  /** The action within the last step. */
  get taken(): Taken | undefined {
    return this.#run.taken;
  }

  /** Whether a state has a property. */
  holds(state: State, property: string): boolean {
    this.#run.state = state;
    return this.#definition(property)() === true;
  }

  #take(from: State, action: string, args: readonly Value[], choose: Choose): State | undefined {
    const run = this.#run;
    run.state = from;
    run.next = {};
    run.choose = choose;
    run.taken = undefined;
    return this.#definition(action)(...args) === true ? run.next : undefined;
  }

  #definition(name: string): (...args: Value[]) => Value {
    const definition = this.#definitions[name];
    if (definition === undefined) throw new Error(`The model does not define ${name}.`);
    return definition;
  }
}

/**
 * What Quint makes of a file: parsed, its names resolved, its types and effects checked. It takes seconds, so it is kept in
 * .cache for all that use the same models.
 */
function parse(file: string): readonly Module[] {
  const name = basename(file, ".qnt");
  const path = join(checked, `${name}-${stateOfModels()}.json`);
  if (!existsSync(path)) {
    check(file, path);
    for (const other of globSync(join(checked, `${name}-*.json`))) {
      if (other !== path) rmSync(other, { force: true });
    }
  }
  const { modules } = JSON.parse(readFileSync(path, "utf8")) as {
    readonly modules: readonly Module[];
  };
  return modules;
}

const checked = join(import.meta.dirname, "../../.cache/models");

/** Differs if a model or a dependency does. */
function stateOfModels(): string {
  const root = join(import.meta.dirname, "../..");
  const sum = createHash("sha256");
  for (const file of [...globSync("docs/model/*.qnt", { cwd: root }).sort(), "package-lock.json"]) {
    sum.update(`${file}\0`).update(readFileSync(join(root, file)));
  }
  return sum.digest("hex").slice(0, 16);
}

/** Others see the file only once it is whole. */
function check(file: string, path: string): void {
  mkdirSync(checked, { recursive: true });
  const folder = mkdtempSync(join(checked, "unfinished-"));
  const out = join(folder, "checked.json");
  const cli = fileURLToPath(import.meta.resolve("@informalsystems/quint/dist/src/cli.js"));
  try {
    execFileSync(execPath, [cli, "typecheck", file, "--out", out], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    renameSync(out, path);
  } catch (error) {
    throw existsSync(out) ? new Error(`${file} is no model:\n${reportIn(out)}`) : error;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What Quint reports, which it writes into the file instead of what it has made. */
function reportIn(out: string): string {
  const { errors } = JSON.parse(readFileSync(out, "utf8")) as {
    readonly errors: readonly Report[];
  };
  const lines = errors.flatMap(({ explanation, locs }) =>
    locs.map(({ source, start }) => `${source}:${start.line + 1}:${start.col + 1}: ${explanation}`),
  );
  return lines.join("\n");
}

interface Report {
  readonly explanation: string;
  readonly locs: readonly {
    readonly source: string;
    /** Counted from 0. */
    readonly start: { readonly line: number; readonly col: number };
  }[];
}

function replaced(of: Declaration, constants: Readonly<Record<string, number>>): Declaration {
  if (of.kind !== "def" || of.qualifier !== "pureval") return of;
  const value = constants[of.name];
  return value === undefined ? of : { ...of, expr: { kind: "int", value } };
}

/** Evaluated at the first use, as Quint does: a value may be defined only where a later condition holds. */
function lazy(evaluate: () => Value): () => Value {
  let value: Value | undefined;
  return () => {
    value ??= evaluate();
    return value;
  };
}

/** How a name is written in the generated code. */
type Scope = ReadonlyMap<string, string>;

function generate(declarations: readonly Declaration[]): string {
  const scope = new Map<string, string>();
  const lines: string[] = [];
  for (const declaration of declarations) {
    if (declaration.kind === "var") {
      scope.set(declaration.name, `run.state[${JSON.stringify(declaration.name)}]`);
    } else if (declaration.kind === "def") {
      const isOperator = declaration.expr.kind === "lambda";
      const name = `d_${declaration.name}`;
      scope.set(declaration.name, isOperator ? name : `${name}()`);
    }
  }
  const definitions = declarations.filter((declaration) => declaration.kind === "def");
  for (const { name, expr, qualifier } of definitions) {
    if (qualifier === "pureval") {
      lines.push(`const d_${name} = lazy(() => ${expression(expr, scope)});`);
      continue;
    }
    const lambda: Lambda = expr.kind === "lambda" ? expr : { kind: "lambda", params: [], expr };
    const inner = withParams(lambda, scope);
    const params = lambda.params.map(({ name: param }) => inner.get(param));
    const isAction = qualifier === "action" && !/step$/i.test(name);
    const record = isAction
      ? `run.taken ??= { action: ${JSON.stringify(name)}, args: [${params.join()}] }; `
      : "";
    lines.push(
      `function d_${name}(${params.join()}) { ${record}return ${expression(lambda.expr, inner)}; }`,
    );
  }
  const exported = definitions.map(({ name }) => `${JSON.stringify(name)}: d_${name}`);
  return `"use strict";\n${lines.join("\n")}\nreturn { ${exported.join()} };`;
}

function withParams({ params }: Lambda, scope: Scope): Scope {
  return new Map([...scope, ...params.map(({ name }, i) => [name, local(name, i)] as const)]);
}

function local(name: string, i = 0): string {
  return name === "_" ? `unused${i}` : `v_${name}`;
}

function expression(of: Expression, scope: Scope): string {
  switch (of.kind) {
    case "int":
    case "bool":
    case "str":
      return JSON.stringify(of.value);
    case "name":
      return named(of.name, scope);
    case "lambda": {
      const inner = withParams(of, scope);
      const params = of.params.map(({ name }) => inner.get(name)).join();
      return `((${params}) => ${expression(of.expr, inner)})`;
    }
    case "let":
      return bound(of.opdef, of.expr, scope);
    case "app":
      return applied(of.opcode, of.args, scope);
  }
}

function named(name: string, scope: Scope): string {
  const found = scope.get(name);
  if (found === undefined) throw new Error(`The compiler does not know the name ${name}.`);
  return found;
}

function bound({ name, qualifier, expr }: Definition, body: Expression, scope: Scope): string {
  const variable = local(name);
  if (qualifier === "nondet" && expr.kind === "app" && expr.opcode === "oneOf") {
    const [set] = expr.args.map((argument) => expression(argument, scope));
    const inner = expression(body, new Map(scope).set(name, variable));
    return (
      `(() => { const all = pick(${set}); if (all.length === 0) return false; ` +
      `const ${variable} = all[run.choose(all.length)]; return ${inner}; })()`
    );
  }
  const isOperator = expr.kind === "lambda";
  const inner = new Map(scope).set(name, isOperator ? variable : `${variable}()`);
  const value = isOperator ? expression(expr, scope) : `lazy(() => ${expression(expr, scope)})`;
  return `(() => { const ${variable} = ${value}; return ${expression(body, inner)}; })()`;
}

function applied(opcode: string, args: readonly Expression[], scope: Scope): string {
  const [first, second] = args;
  const parts = (): string[] => args.map((argument) => expression(argument, scope));
  switch (opcode) {
    case "and":
    case "actionAll":
      return `(${parts().join(" && ")})`;
    case "or":
      return `(${parts().join(" || ")})`;
    case "implies": {
      const [condition, conclusion] = parts();
      return `(!${condition} || ${conclusion})`;
    }
    case "ite": {
      const [condition, one, other] = parts();
      return `(${condition} ? ${one} : ${other})`;
    }
    case "actionAny":
      return `[${parts()
        .map((part) => `() => ${part}`)
        .join()}][run.choose(${args.length})]()`;
    case "assign":
      if (first?.kind !== "name" || second === undefined) break;
      return `((run.next[${JSON.stringify(first.name)}] = ${expression(second, scope)}), true)`;
    case "Rec":
      return `({ ${fieldsOf(args, scope).join()} })`;
    case "field":
      if (first === undefined || second?.kind !== "str") break;
      return `${expression(first, scope)}.${second.value}`;
    case "with": {
      const [record, ...change] = args;
      if (record === undefined) break;
      return `({ ...${expression(record, scope)}, ${fieldsOf(change, scope).join()} })`;
    }
  }
  const operator = scope.get(opcode);
  if (operator !== undefined) return `${operator}(${parts().join()})`;
  if (!(opcode in builtins)) throw new Error(`The compiler does not know the operator ${opcode}.`);
  return `builtins.${opcode}(${parts().join()})`;
}

/** Names and values in turn, sorted by name. */
function fieldsOf(args: readonly Expression[], scope: Scope): string[] {
  const fields: string[] = [];
  for (let i = 0; i + 1 < args.length; i += 2) {
    const [name, value] = [args[i], args[i + 1]];
    if (name?.kind !== "str" || value === undefined)
      throw new Error("A record has a field without a name.");
    fields.push(`${name.value}: ${expression(value, scope)}`);
  }
  return fields.sort();
}
