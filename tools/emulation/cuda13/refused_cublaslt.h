// What PyTorch and cuSOLVER bind of libcublasLt.so.13, beyond what cublaslt.cpp has.
REFUSED(cublasLtMatmulAlgoConfigGetAttribute)
REFUSED(cublasLtMatmulAlgoConfigSetAttribute) REFUSED(cublasLtMatmulAlgoInit)
