import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { describe, expect, test } from "vitest";

const pages = globSync(["*.md", "{docs,deploy,examples,.github}/**/*.md"]).sort();

const maxColumns = 120;

const folders = "{.github,bench,bin,deploy,docs,examples,proto,scripts,src,test}";

/** Everything that a page may name, with folders ending in a slash. */
const files = globSync(["*", `${folders}/**/*`], { withFileTypes: true }).map(
  (entry) => normalize(join(entry.parentPath, entry.name)) + (entry.isDirectory() ? "/" : ""),
);

/** Paths in pages that are not of this repository. Say here of what. */
const foreign: Readonly<Record<string, string>> = {
  "proto/rpc.proto": "etcd3's",
  "server/storage/mvcc/watchable_store.go": "etcd's",
};

/** What programs print, which can't be wrapped. */
const output = /^```(?:console|json)\n.*?^```/gms;

/** A page without its blocks of code. */
function proseOf(page: string): string {
  return readFileSync(page, "utf8").replaceAll(/^```.*?^```/gms, "");
}

/** What a page has in backticks, on one line. */
function codeIn(text: string): string[] {
  return [...text.matchAll(/`([^`\n]+)`/g)].map(([, code = ""]) => code);
}

/** Whether it looks like the name of a file or folder of this repository. */
function isPath(code: string): boolean {
  if (/[^\w./-]/.test(code) || code.startsWith("/") || code in foreign) return false;
  if (/\.(?:ts|md|proto|binpb|ya?ml)$/.test(code)) return true;
  const [first, second] = code.split("/");
  return second !== undefined && (existsSync(`src/${first}`) || files.includes(`${first}/`));
}

/** Pages leave out the beginning of a path where that is clear, as src/ is everywhere. */
function isKnown(path: string): boolean {
  return [path, `${path}/`].some((end) =>
    files.some((file) => file === end || file.endsWith(`/${end}`)),
  );
}

/** The anchor that GitHub gives a heading. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");
}

describe("The pages", () => {
  test("are found", () => {
    expect(pages).toContain("README.md");
    expect(pages).toContain("docs/architecture.md");
    expect(pages.length).toBeGreaterThan(12);
  });

  test.each(pages)("%s has lines of at most 120 columns, except in tables and output", (page) => {
    const lines = readFileSync(page, "utf8").replaceAll(output, "").split("\n");
    // A footnote is one line, too.
    const long = lines.filter((line) => line.length > maxColumns && !/^\s*\||^\[\^/.test(line));
    expect(long).toEqual([]);
  });

  test.each(pages)("%s has each row of a table below its head", (page) => {
    // What is not in a paragraph with a line such as |---|---| is shown as text.
    const tables = proseOf(page)
      .split(/\n\s*\n/)
      .filter((paragraph) => /^\s*\|/.test(paragraph));
    expect(tables.filter((table) => !/^\s*\|.*\n\s*\|[-:| ]+\|/.test(table))).toEqual([]);
  });

  test.each(pages)("%s links only to what exists", (page) => {
    const links = [...proseOf(page).matchAll(/\]\(([^)\s]+)\)/g)].map(([, to = ""]) => to);
    const broken = links.filter((to) => {
      if (/^https?:/.test(to)) return false;
      const [path = "", anchor] = to.split("#");
      const file = path === "" ? page : join(dirname(page), path);
      if (!existsSync(file)) return true;
      if (anchor === undefined) return false;
      const headings = proseOf(file).matchAll(/^#+ (.*)$/gm);
      return ![...headings].some(([, heading = ""]) => anchorOf(heading) === anchor);
    });
    expect(broken).toEqual([]);
  });

  test.each(pages)("%s names only files and folders that exist", (page) => {
    const named = codeIn(proseOf(page)).filter(isPath);
    expect(named.filter((path) => !isKnown(path))).toEqual([]);
  });
});

describe("docs/reference/metrics.md", () => {
  const text = readFileSync("docs/reference/metrics.md", "utf8").replaceAll(/\n {2}/g, " ");
  const labels = new Map(
    text.split(/^##+ /m).flatMap((section) => {
      const shared = section.match(/^All have the label .*$/gm)?.join(" ") ?? "";
      const metrics = section.matchAll(/^- `(\w+)(?:\{([\w,]+)\})?`/gm);
      return [...metrics].map(
        ([, name = "", own = ""]) => [name, [...codeIn(shared), ...own.split(",")]] as const,
      );
    }),
  );

  test("has each metric and label that a page, an alert or a dashboard selects", () => {
    const selecting = [...pages, ...globSync("deploy/**/*.{yaml,yml,json}")];
    const selected = selecting.flatMap((file) => {
      const selectors = readFileSync(file, "utf8").matchAll(/\b(watch_fanout_\w+)\{([^}]*)\}/g);
      return [...selectors].flatMap(([, name = "", matchers = ""]) =>
        [...matchers.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g)].map(([, label = ""]) => ({
          ...{ file, name: name.replace(/_(?:bucket|count|sum)$/, ""), label },
        })),
      );
    });
    expect(selected.length).toBeGreaterThan(2);
    // Prometheus and its histograms add these.
    const added = new Set(["le", "job", "instance", "namespace", "pod"]);
    const unknown = selected.filter(
      ({ name, label }) => !added.has(label) && labels.get(name)?.includes(label) !== true,
    );
    expect(unknown).toEqual([]);
  });
});

describe("docs/README.md", () => {
  test("links to every page", () => {
    const index = readFileSync("docs/README.md", "utf8");
    const links = new Set([...index.matchAll(/\]\(([\w/-]+\.md)\)/g)].map(([, to = ""]) => to));
    const missing = globSync("**/*.md", { cwd: "docs" }).filter((page) => !links.has(page));
    expect(missing).toEqual(["README.md"]);
  });
});

const sources = globSync("src/**/*.ts", { exclude: ["src/wire/generated/**"] }).map((file) => ({
  file: file.slice("src/".length),
  source: readFileSync(file, "utf8"),
}));
const words = new Set(
  sources.flatMap(({ file, source }) => `${file} ${source}`.match(/\w+/g) ?? []),
);

/** The folders of a file, from its own up to its layer. */
function foldersOf(file: string): string[] {
  const folder = dirname(file);
  return folder === "." ? [] : [folder, ...foldersOf(folder)];
}

/** Names in the text, also of members, that the source does not have. */
function unknownNamesIn(text: string): string[] {
  return codeIn(text)
    .filter((code) => /^#?\w+(?:\.#?\w+)*$/.test(code))
    .flatMap((code) => code.match(/\w+/g) ?? [])
    .filter((name) => !words.has(name));
}

describe("docs/architecture.md", () => {
  const text = proseOf("docs/architecture.md");

  test("names only what the source has, or Kubernetes", () => {
    const kubernetes = [
      ...["cacheWatcher", "conditionalProgressRequester", "dispatchEvents", "GetList"],
      ...["processEvent", "waitUntilFresh", "watchCache", "watchCacheInterval"],
    ];
    expect(unknownNamesIn(text).filter((name) => !kubernetes.includes(name))).toEqual([]);
  });

  test("names the folder of each class and interface that it names", () => {
    const code = codeIn(text);
    const paths = new Set(code);
    const names = new Set(code.map((name) => name.split(".")[0]));
    const missing = sources.flatMap(({ file, source }) =>
      [...source.matchAll(/^export (?:class|interface) (\w+)/gm)]
        .filter(([, name = ""]) => names.has(name) && !foldersOf(file).some((to) => paths.has(to)))
        .map(([, name]) => `${name} is in ${file}`),
    );
    expect(missing).toEqual([]);
  });
});

describe("docs/glossary.md", () => {
  const rows = readFileSync("docs/glossary.md", "utf8")
    .split("\n")
    .filter((line) => /^\| (?!term )/.test(line))
    .map((line) => line.split("|").map((cell) => cell.trim()));

  test("has a meaning and the field's term, or a dash, for each term", () => {
    expect(rows.length).toBeGreaterThan(30);
    const incomplete = rows.filter((cells) => cells.length !== 5 || cells.slice(1, 4).includes(""));
    expect(incomplete).toEqual([]);
  });

  test("has each term once", () => {
    const terms = rows.map(([, term]) => term);
    expect(terms.filter((term, i) => terms.indexOf(term) !== i)).toEqual([]);
  });

  test("names only what the source has, except in the column of the field", () => {
    const ours = rows.map(([, term = "", meaning = ""]) => `${term} ${meaning}`).join("\n");
    expect(unknownNamesIn(ours)).toEqual([]);
  });
});
