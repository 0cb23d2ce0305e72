// Original file: proto/watchfanout/v1/object.proto


/**
 * What selectors select an object by.
 */
export interface Attributes {
  /**
   * The labels, by key.
   */
  'labels'?: ({[key: string]: string});
  /**
   * The fields that the resource declares, by name, as field selectors compare them. An absent one is left out.
   */
  'fields'?: ({[key: string]: string});
}

/**
 * What selectors select an object by.
 */
export interface Attributes__Output {
  /**
   * The labels, by key.
   */
  'labels': ({[key: string]: string});
  /**
   * The fields that the resource declares, by name, as field selectors compare them. An absent one is left out.
   */
  'fields': ({[key: string]: string});
}
