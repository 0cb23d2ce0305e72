import { invalidRequest } from "../../base/errors.ts";
import type { View } from "../../cacher/request/request.ts";
import type { FieldMask__Output } from "../../wire/generated/google/protobuf/FieldMask.ts";
import type { View__Output } from "../../wire/generated/watchfanout/v1/View.ts";
import type { ServedResource } from "../calls/service-options.ts";

/** The fields of a request that say what of each object is sent. */
export interface ViewFields {
  readonly view: View__Output;
  readonly read_mask: FieldMask__Output | null;
}

const views = {
  VIEW_UNSPECIFIED: "FULL",
  VIEW_FULL: "FULL",
  VIEW_KEYS: "KEYS",
  VIEW_COUNT: "COUNT",
  VIEW_ATTRIBUTES: "ATTRIBUTES",
} as const satisfies Record<View__Output, unknown>;

/**
 * The view that a List asks for. Throws INVALID_REQUEST for one that the resource does not have, and for a mask that its
 * codec can't follow, with the path.
 */
export function viewOfList(
  resource: Pick<ServedResource, "project">,
  { view, read_mask: mask }: ViewFields,
): View | "COUNT" {
  const asked = views[view];
  const paths = maskPaths(mask);
  if (paths === undefined && asked !== "ATTRIBUTES") return asked;
  if (paths !== undefined && asked !== "FULL") {
    throw invalidRequest(
      "read_mask",
      `read_mask is given with ${view}, which has nothing of the values. Give one of them.`,
    );
  }
  const projection = resource.project?.(paths ?? "ATTRIBUTES");
  if (projection !== undefined) return projection;
  throw invalidRequest("view", `This resource has no ${view}. Ask for VIEW_KEYS or VIEW_FULL.`);
}

/** As `viewOfList`, for a request that has no count. */
export function viewOf(resource: Pick<ServedResource, "project">, request: ViewFields): View {
  const view = viewOfList(resource, request);
  if (view !== "COUNT") return view;
  throw invalidRequest(
    "view",
    "Only a List has VIEW_COUNT. Ask for VIEW_KEYS, and count, or for a List.",
  );
}

/**
 * Whether a History that asks for this view has no values. Throws INVALID_REQUEST for another one than keys and whole
 * objects.
 */
export function isOfKeys(view: View__Output): boolean {
  const asked = views[view];
  if (asked === "KEYS" || asked === "FULL") return asked === "KEYS";
  throw invalidRequest("view", `A history has no ${view}. Ask for VIEW_KEYS or VIEW_FULL.`);
}

/** What the fields ask for, equal if they are; empty for whole objects: tokens of servers without views stay valid. */
export function viewIdentity({ view, read_mask: mask }: ViewFields): readonly unknown[] {
  const paths = maskPaths(mask);
  return [...(views[view] === "FULL" ? [] : [view]), ...(paths === undefined ? [] : [paths])];
}

/** Undefined: the whole value. */
function maskPaths(mask: FieldMask__Output | null): readonly string[] | undefined {
  if (mask === null || mask.paths.length === 0 || mask.paths.includes("*")) return undefined;
  return mask.paths;
}
