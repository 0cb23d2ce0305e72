import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, onTestFinished, test } from "vitest";
import { findingsIn } from "../../scripts/prose/check.ts";
import { proseRules } from "../../scripts/prose/rules.ts";
import { proseOfTypeScript } from "../../scripts/prose/typescript.ts";

const run = promisify(execFile);

/** What is found, each as `line:column text`. */
function found(path: string, ...lines: readonly string[]): readonly string[] {
  return findingsIn(path, lines.join("\n")).map(
    ({ line, column, text }) => `${line}:${column} ${text}`,
  );
}

function inSource(...lines: readonly string[]): readonly string[] {
  return found("a.ts", ...lines);
}

function inPage(...lines: readonly string[]): readonly string[] {
  return found("a.md", ...lines);
}

describe("The rules of prose", () => {
  /** An example of each, from the style guide or from what was once in the source. */
  const examples: Readonly<Record<string, string>> = {
    who: "Who held it drops it.",
    whoever: "for whoever stands by",
    nobody: "waits for nobody",
    none: "a path that is none",
    "no longer ... either": "Holds it no longer, and does not wait either.",
    "do so": "if it has to do so",
    "at the most": "in one round at the most",
    anew: "list anew",
    "once more": "is asked once more",
    "by turns": "to readers by turns",
    told: "The wish to be told",
    "hear of": "hears of the end",
    "but for": "but for the rest of a revision",
    "for ever": "goes for ever",
    "at hand": "the token at hand",
    "be had": "where it can be had",
    "as it stands": "the object as it stands",
    "stand on": "a cache stands on it",
    "come by": "a key came by",
    "come of": "what came of them",
    "how far it has come": "how far the cache has come",
    "go on": "goes on from there",
    "take up": "is taken up again",
    "take the place of": "takes the place of each",
    "let go": "let go when it ends",
    "is to be": "which is to be sent",
    "had better": "had better go elsewhere",
    harmless: "Harmless if it did not.",
    "of no use": "is of no use without it",
    "in vain": "tried in vain",
    "never right": "which is never right",
    "all the same": "is sent all the same",
    "in step": "never in step with others",
    "now and then": "is logged now and then",
    "not mind": "does not mind it",
    "say so": "an error that says so",
    kin: "the variable and its kin",
    fold: "folded to the newest",
    wish: "the wishes of a watcher",
    owed: "while it is owed",
    poke: "when it is poked",
    patrol: "the patrol sees it",
    spared: "changes that it was spared",
    level: "once it is level with the store",
    "left-out": "left-out keys",
    rooms: "the rooms of src",
  };

  test.each(proseRules)("$name has an example, which it finds in any case", ({ name, pattern }) => {
    expect(pattern.flags, "the check adds the flags").toBe("");
    const example = examples[name] ?? "";
    const rulesThatFind = (text: string): readonly string[] =>
      findingsIn("a.md", text).map(({ rule }) => rule.name);
    expect(rulesThatFind(example)).toContain(name);
    expect(rulesThatFind(example.toUpperCase())).toContain(name);
  });

  test("say what to write in words that they do not find themselves", () => {
    for (const { name, instead } of proseRules)
      expect(findingsIn("a.md", instead), name).toEqual([]);
  });

  test("find nothing in plain sentences, or within longer words", () => {
    const plain =
      "Returns at most one retold story from its folder. Some ones-complement, wholly owned. " +
      "Maximum filter evaluations per dispatch round. A round may exceed it to finish the revision.";
    expect(inPage(plain.replace("retold", "stored"))).toEqual([]);
  });

  test("let people be who they are", () => {
    expect(inPage("Users who report a bug, and", "maintainers", "who fix it.")).toEqual([]);
    expect(inPage("A stream who reports a bug.")).toEqual(["1:10 who"]);
  });
});

describe("In TypeScript", () => {
  test("comments are prose, also over several lines", () => {
    expect(inSource("const a = 1; // anew", "/* anew */ f();")).toEqual(["1:17 anew", "2:4 anew"]);
    expect(inSource("/**", " * One round at", " * the most.", " */")).toEqual(["2:14 at the most"]);
    expect(inSource("// One round at", "// the most.")).toEqual(["1:14 at the most"]);
    expect(inSource("f(); // at", 'g("the most");')).toEqual([]);
  });

  test("so are strings and templates of more than one word, but not what is between them", () => {
    expect(inSource('f("list anew", \'list anew\', "anew", `list anew`);')).toEqual([
      "1:9 anew",
      "1:22 anew",
      "1:43 anew",
    ]);
    expect(inSource(`f(\`list anew \${anew(\`from \${anew} anew\`)} or anew.\`, anew);`)).toEqual([
      "1:9 anew",
      "1:35 anew",
      "1:46 anew",
    ]);
    expect(inSource(`f(\`a \${g({ anew: {} })} anew\`, { anew });`)).toEqual(["1:25 anew"]);
    expect(inSource('import { anew } from "./anew.ts";')).toEqual([]);
  });

  test("strings that are put together are one", () => {
    expect(inSource('f("one round at " +', '    "the most");')).toEqual(["1:14 at the most"]);
    expect(inSource('f("one round at ", "the most");')).toEqual([]);
  });

  test("names are not: of code, and in backticks", () => {
    expect(inSource("const anew = who(fold);", "// Calls `anew` and `told()`.")).toEqual([]);
  });

  test("escaped characters are not part of a word, and end nothing", () => {
    expect(inSource('f("a b \\\\", told);')).toEqual([]);
    expect(inSource('f("a line\\ntold", "a \\" told");')).toEqual(["1:12 told", "1:25 told"]);
  });

  test("a regular expression begins no string and no comment", () => {
    expect(
      inSource('f(/["\'`]/, "list anew");', "a = b / c; // anew", "f(/[/*]/); anew();"),
    ).toEqual(["1:18 anew", "2:15 anew"]);
    expect(inSource('return /"/.test(a) || "list anew";')).toEqual(["1:29 anew"]);
  });

  test("whatever the text is, every character keeps its place", () => {
    for (const text of ["/", "/* a", '"a b', "`a ${b", "`${", "}", "a / b", "/a", "'", "\\"]) {
      expect(proseOfTypeScript(text), text).toHaveLength(text.length);
    }
  });
});

describe("In Markdown", () => {
  test("text is prose, in tables and as the text of links too", () => {
    expect(inPage("| anew |", "[list anew](anew.md)")).toEqual(["1:3 anew", "2:7 anew"]);
    expect(inPage("One round at", "the most.")).toEqual(["1:11 at the most"]);
  });

  test("code is not, nor addresses and comments", () => {
    const fenced = ["```sh", "anew", "```", "  ~~~", "  anew", "  ~~~"];
    const page = [
      "`anew`, ``told ` told``",
      ...fenced,
      "<!-- anew -->",
      "https://anew.example/told",
    ];
    expect(inPage(...page)).toEqual([]);
    expect(inPage("```", "anew", "```", "anew")).toEqual(["4:1 anew"]);
  });
});

describe("The command", () => {
  const script = fileURLToPath(new URL("../../scripts/check-prose.ts", import.meta.url));

  async function check(
    files: Readonly<Record<string, string>>,
    ...args: readonly string[]
  ): Promise<{ readonly code?: number; readonly stdout: string }> {
    const cwd = await mkdtemp(join(tmpdir(), "watch-fanout-prose-"));
    onTestFinished(() => rm(cwd, { recursive: true }));
    for (const [name, text] of Object.entries(files)) await writeFile(join(cwd, name), text);
    return run(process.execPath, [script, ...args], { cwd }).catch((error) => error);
  }

  test("fails with every place and what to write there", async () => {
    expect(await check({ "a.md": "Fine.\nList anew.\n", "b.ts": "// told\n" })).toMatchObject({
      code: 1,
      stdout:
        'a.md:2:6: "anew": write again; of a listing: relist\n' +
        'b.ts:1:4: "told": write notify, deliver, report, return, configure; of two things: distinguish\n' +
        "2 findings in 2 files\n",
    });
  });

  test("passes where there is nothing to find", async () => {
    expect(await check({ "a.md": "Fine.\n" })).toMatchObject({ stdout: "0 findings in 1 files\n" });
  });

  test("looks only at the files that it is given", async () => {
    expect(await check({ "a.md": "Anew.\n", "b.md": "Fine.\n" }, "b.md")).toMatchObject({
      stdout: "0 findings in 1 files\n",
    });
  });

  test("counts by rule and folder on demand", async () => {
    const { stdout } = await check({ "a.md": "Anew, anew, told.\n" }, "--count");
    expect(stdout).toBe(
      "findings  rule\n       2  anew\n       1  told\n\n" +
        "findings  folder\n       3  (top)\n\n3 findings in 1 files\n",
    );
  });
});
