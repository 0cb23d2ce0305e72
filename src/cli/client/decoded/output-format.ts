import { InvalidArgumentError, type Option } from "commander";
import { messageOf } from "../../../base/errors.ts";
import { Columns } from "./columns.ts";
import { JsonPathTemplate } from "./json-path-template.ts";

/** The formats that show values decoded. */
export type DecodedFormat = "yaml" | JsonPathTemplate | Columns;

/** What `--output` can be. */
export type Format = "json" | "table" | "value" | DecodedFormat;

/** As help and completion name them; behind `=` is what the user writes. */
const names = ["json", "table", "value", "yaml", "jsonpath=", "columns="];

/** Lets an option be a Format. */
export function asOutputFormat(option: Option): Option {
  return option.choices(names).argParser(outputFormat);
}

export function isDecoded(format: Format): format is DecodedFormat {
  return format !== "json" && format !== "table" && format !== "value";
}

function outputFormat(text: string): Format {
  if (text === "json" || text === "table" || text === "value" || text === "yaml") return text;
  try {
    if (text.startsWith("jsonpath=")) return new JsonPathTemplate(text.slice("jsonpath=".length));
    if (text.startsWith("columns=")) return new Columns(text.slice("columns=".length));
  } catch (error) {
    throw new InvalidArgumentError(`${messageOf(error)}.`);
  }
  throw new InvalidArgumentError(
    "The formats are json, table, value, yaml, jsonpath=TEMPLATE and columns=HEADING:PATH,...",
  );
}
