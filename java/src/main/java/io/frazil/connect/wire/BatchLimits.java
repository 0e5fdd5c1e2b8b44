package io.frazil.connect.wire;

/** The bounds that Java and the native library share ({@code rust/core/src/limits.rs}). */
public final class BatchLimits {
    /** Rows of a frame. */
    public static final int BLOCK_ROWS_MAX = 256;
    /** Bytes of a frame. */
    public static final int FRAME_BYTES_MAX = 64 << 20;
    /** Bytes that a frame should have at most when its records allow. */
    public static final int FRAME_BYTES_SOFT = 1 << 20;

    /** Bytes of the buffer that is kept from frame to frame; a larger one is let go after its frame. */
    public static final int FRAME_BUFFER_KEPT = 4 << 20;

    private BatchLimits() {}
}
