// Original file: proto/watchfanout/v1/list_watch_service.proto

/**
 * How the labels and fields of a resource's objects are read.
 */
export const Codec = {
  /**
   * Never sent.
   */
  CODEC_UNSPECIFIED: 'CODEC_UNSPECIFIED',
  /**
   * They are not: selectors are refused.
   */
  CODEC_OPAQUE: 'CODEC_OPAQUE',
  /**
   * From JSON.
   */
  CODEC_JSON: 'CODEC_JSON',
  /**
   * From a protobuf message.
   */
  CODEC_PROTOBUF: 'CODEC_PROTOBUF',
} as const;

/**
 * How the labels and fields of a resource's objects are read.
 */
export type Codec =
  /**
   * Never sent.
   */
  | 'CODEC_UNSPECIFIED'
  | 0
  /**
   * They are not: selectors are refused.
   */
  | 'CODEC_OPAQUE'
  | 1
  /**
   * From JSON.
   */
  | 'CODEC_JSON'
  | 2
  /**
   * From a protobuf message.
   */
  | 'CODEC_PROTOBUF'
  | 3

/**
 * How the labels and fields of a resource's objects are read.
 */
export type Codec__Output = typeof Codec[keyof typeof Codec]
