// see wire_codec.h
