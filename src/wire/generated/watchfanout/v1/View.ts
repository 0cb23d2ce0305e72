// Original file: proto/watchfanout/v1/list_watch_service.proto

/**
 * What of each object a response has.
 */
export const View = {
  /**
   * The same as VIEW_FULL.
   */
  VIEW_UNSPECIFIED: 'VIEW_UNSPECIFIED',
  /**
   * All of it.
   */
  VIEW_FULL: 'VIEW_FULL',
  /**
   * All of it but the value, which is empty and never sent. Selectors still select by the value.
   */
  VIEW_KEYS: 'VIEW_KEYS',
  /**
   * Only in a List: no objects. remaining_item_count is the number of objects that the request selects, and always
   * set. page_size does not matter.
   */
  VIEW_COUNT: 'VIEW_COUNT',
  /**
   * Its labels and the fields that the resource declares, as `attributes`, in place of the value, which is empty. Only of
   * a resource with a codec. A server that has this view in a Resource has read_mask for it, too.
   */
  VIEW_ATTRIBUTES: 'VIEW_ATTRIBUTES',
} as const;

/**
 * What of each object a response has.
 */
export type View =
  /**
   * The same as VIEW_FULL.
   */
  | 'VIEW_UNSPECIFIED'
  | 0
  /**
   * All of it.
   */
  | 'VIEW_FULL'
  | 1
  /**
   * All of it but the value, which is empty and never sent. Selectors still select by the value.
   */
  | 'VIEW_KEYS'
  | 2
  /**
   * Only in a List: no objects. remaining_item_count is the number of objects that the request selects, and always
   * set. page_size does not matter.
   */
  | 'VIEW_COUNT'
  | 3
  /**
   * Its labels and the fields that the resource declares, as `attributes`, in place of the value, which is empty. Only of
   * a resource with a codec. A server that has this view in a Resource has read_mask for it, too.
   */
  | 'VIEW_ATTRIBUTES'
  | 4

/**
 * What of each object a response has.
 */
export type View__Output = typeof View[keyof typeof View]
