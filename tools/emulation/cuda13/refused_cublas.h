// What PyTorch and cuSOLVER bind of libcublas.so.13, beyond what cublas.cpp has.
REFUSED(cublasCaxpy_v2)
REFUSED(cublasCcopy_v2) REFUSED(cublasCcopy_v2_64) REFUSED(cublasCdgmm) REFUSED(cublasCdotc_v2) REFUSED(cublasCdotu_v2) REFUSED(cublasCgeam_64) REFUSED(cublasCgelsBatched) REFUSED(
    cublasCgemmStridedBatched_64) REFUSED(cublasCgemm_v2_64) REFUSED(cublasCgemvStridedBatched_64) REFUSED(cublasCgemv_v2_64) REFUSED(cublasCgeqrfBatched) REFUSED(cublasCgerc_v2)
    REFUSED(cublasCgerc_v2_64) REFUSED(cublasCgeru_v2) REFUSED(cublasCgeru_v2_64) REFUSED(cublasCgetrfBatched) REFUSED(cublasCgetrsBatched) REFUSED(cublasChemm_v2) REFUSED(
        cublasChemm_v2_64) REFUSED(cublasChemv_v2) REFUSED(cublasChemv_v2_64) REFUSED(cublasCher2_v2) REFUSED(cublasCher2k_v2) REFUSED(cublasCher2k_v2_64)
        REFUSED(cublasCher_v2) REFUSED(cublasCherk_v2) REFUSED(cublasCrot_v2) REFUSED(cublasCrotg_v2) REFUSED(cublasCscal_v2) REFUSED(
            cublasCscal_v2_64) REFUSED(cublasCsrot_v2) REFUSED(cublasCsrot_v2_64) REFUSED(cublasCsscal_v2) REFUSED(cublasCsscal_v2_64) REFUSED(cublasCswap_v2)
            REFUSED(cublasCswap_v2_64) REFUSED(cublasCsymm_v2) REFUSED(cublasCsymv_v2) REFUSED(cublasCsyr2_v2) REFUSED(cublasCsyr2k_v2) REFUSED(
                cublasCsyr_v2) REFUSED(cublasCsyrk_v2) REFUSED(cublasCsyrkx) REFUSED(cublasCtrmm_v2) REFUSED(cublasCtrmm_v2_64) REFUSED(cublasCtrmv_v2)
                REFUSED(cublasCtrmv_v2_64) REFUSED(cublasCtrsmBatched) REFUSED(cublasCtrsm_v2) REFUSED(
                    cublasCtrsm_v2_64) REFUSED(cublasCtrsv_v2) REFUSED(cublasDasum_v2) REFUSED(cublasDaxpy_v2) REFUSED(cublasDcopy_v2) REFUSED(cublasDcopy_v2_64) REFUSED(cublasDdgmm)
                    REFUSED(cublasDdot_v2) REFUSED(cublasDgeam_64) REFUSED(cublasDgelsBatched) REFUSED(cublasDgemmStridedBatched_64) REFUSED(cublasDgemm_v2_64) REFUSED(
                        cublasDgemvStridedBatched_64) REFUSED(cublasDgemv_v2_64) REFUSED(cublasDgeqrfBatched) REFUSED(cublasDger_v2) REFUSED(cublasDger_v2_64)
                        REFUSED(cublasDgetrfBatched) REFUSED(cublasDgetrsBatched) REFUSED(cublasDnrm2_v2) REFUSED(cublasDotEx) REFUSED(cublasDrot_v2) REFUSED(
                            cublasDrot_v2_64) REFUSED(cublasDrotg_v2) REFUSED(cublasDrotm_v2) REFUSED(cublasDrotmg_v2) REFUSED(cublasDscal_v2)
                            REFUSED(cublasDscal_v2_64) REFUSED(cublasDswap_v2) REFUSED(cublasDswap_v2_64) REFUSED(cublasDsymm_v2) REFUSED(
                                cublasDsymm_v2_64) REFUSED(cublasDsymv_v2) REFUSED(cublasDsymv_v2_64) REFUSED(cublasDsyr2_v2) REFUSED(cublasDsyr2k_v2) REFUSED(cublasDsyr2k_v2_64)
                                REFUSED(cublasDsyr_v2) REFUSED(cublasDsyrk_v2) REFUSED(cublasDsyrkx) REFUSED(cublasDtrmm_v2) REFUSED(cublasDtrmm_v2_64) REFUSED(cublasDtrmv_v2) REFUSED(
                                    cublasDtrmv_v2_64) REFUSED(cublasDtrsmBatched) REFUSED(cublasDtrsm_v2) REFUSED(cublasDtrsm_v2_64) REFUSED(cublasDtrsv_v2)
                                    REFUSED(cublasDzasum_v2) REFUSED(cublasDznrm2_v2) REFUSED(cublasGetEmulationSpecialValuesSupport) REFUSED(
                                        cublasGetFixedPointEmulationMantissaBitOffset) REFUSED(cublasGetFixedPointEmulationMantissaControl)
                                        REFUSED(cublasGetFixedPointEmulationMaxMantissaBitCount) REFUSED(cublasGetMatrixAsync) REFUSED(cublasGetVectorAsync) REFUSED(
                                            cublasIcamax_v2) REFUSED(cublasIcamin_v2) REFUSED(cublasIdamax_v2) REFUSED(cublasIdamin_v2) REFUSED(cublasIsamax_v2)
                                            REFUSED(cublasIsamin_v2) REFUSED(cublasIzamax_v2) REFUSED(cublasIzamin_v2) REFUSED(cublasSasum_v2) REFUSED(cublasSaxpy_v2) REFUSED(
                                                cublasScasum_v2) REFUSED(cublasScnrm2_v2) REFUSED(cublasScopy_v2) REFUSED(cublasScopy_v2_64) REFUSED(cublasSdgmm)
                                                REFUSED(cublasSdot_v2) REFUSED(cublasSetEmulationSpecialValuesSupport) REFUSED(cublasSetEmulationStrategy) REFUSED(
                                                    cublasSetEnvironmentMode) REFUSED(cublasSetFixedPointEmulationMantissaBitOffset) REFUSED(cublasSetFixedPointEmulationMantissaControl)
                                                    REFUSED(cublasSetFixedPointEmulationMaxMantissaBitCount) REFUSED(cublasSetMatrixAsync) REFUSED(
                                                        cublasSetVectorAsync) REFUSED(cublasSgeam_64) REFUSED(cublasSgelsBatched) REFUSED(cublasSgemmStridedBatched_64) REFUSED(cublasSgemm_v2_64)
                                                        REFUSED(cublasSgemvStridedBatched_64) REFUSED(cublasSgemv_v2_64) REFUSED(cublasSgeqrfBatched) REFUSED(
                                                            cublasSger_v2) REFUSED(cublasSger_v2_64) REFUSED(cublasSgetrfBatched) REFUSED(cublasSgetrsBatched) REFUSED(cublasSnrm2_v2)
                                                            REFUSED(cublasSrot_v2) REFUSED(cublasSrot_v2_64) REFUSED(cublasSrotg_v2) REFUSED(cublasSrotm_v2) REFUSED(
                                                                cublasSrotmg_v2) REFUSED(cublasSscal_v2) REFUSED(cublasSscal_v2_64) REFUSED(cublasSswap_v2)
                                                                REFUSED(cublasSswap_v2_64) REFUSED(cublasSsymm_v2) REFUSED(
                                                                    cublasSsymm_v2_64) REFUSED(cublasSsymv_v2) REFUSED(cublasSsymv_v2_64) REFUSED(cublasSsyr2_v2)
                                                                    REFUSED(cublasSsyr2k_v2) REFUSED(cublasSsyr2k_v2_64) REFUSED(
                                                                        cublasSsyr_v2) REFUSED(cublasSsyrk_v2) REFUSED(cublasSsyrkx) REFUSED(cublasStrmm_v2)
                                                                        REFUSED(cublasStrmm_v2_64) REFUSED(cublasStrmv_v2) REFUSED(
                                                                            cublasStrmv_v2_64) REFUSED(cublasStrsmBatched) REFUSED(cublasStrsm_v2)
                                                                            REFUSED(cublasStrsm_v2_64) REFUSED(cublasStrsv_v2) REFUSED(cublasZaxpy_v2) REFUSED(
                                                                                cublasZcopy_v2) REFUSED(cublasZcopy_v2_64)
                                                                                REFUSED(cublasZdgmm) REFUSED(cublasZdotc_v2) REFUSED(cublasZdotu_v2) REFUSED(
                                                                                    cublasZdrot_v2) REFUSED(cublasZdrot_v2_64)
                                                                                    REFUSED(cublasZdscal_v2) REFUSED(cublasZdscal_v2_64) REFUSED(cublasZgeam_64) REFUSED(
                                                                                        cublasZgelsBatched) REFUSED(cublasZgemmStridedBatched_64)
                                                                                        REFUSED(cublasZgemm_v2_64) REFUSED(cublasZgemvStridedBatched_64) REFUSED(
                                                                                            cublasZgemv_v2_64) REFUSED(cublasZgeqrfBatched) REFUSED(cublasZgerc_v2)
                                                                                            REFUSED(cublasZgerc_v2_64) REFUSED(cublasZgeru_v2) REFUSED(
                                                                                                cublasZgeru_v2_64) REFUSED(cublasZgetrfBatched)
                                                                                                REFUSED(cublasZgetrsBatched) REFUSED(cublasZhemm_v2) REFUSED(
                                                                                                    cublasZhemm_v2_64) REFUSED(cublasZhemv_v2)
                                                                                                    REFUSED(cublasZhemv_v2_64) REFUSED(cublasZher2_v2) REFUSED(
                                                                                                        cublasZher2k_v2) REFUSED(cublasZher2k_v2_64)
                                                                                                        REFUSED(cublasZher_v2) REFUSED(cublasZherk_v2) REFUSED(
                                                                                                            cublasZrot_v2) REFUSED(cublasZrotg_v2) REFUSED(cublasZscal_v2)
                                                                                                            REFUSED(cublasZscal_v2_64) REFUSED(
                                                                                                                cublasZswap_v2)
                                                                                                                REFUSED(cublasZswap_v2_64) REFUSED(cublasZsymm_v2) REFUSED(
                                                                                                                    cublasZsymv_v2) REFUSED(cublasZsyr2_v2)
                                                                                                                    REFUSED(cublasZsyr2k_v2) REFUSED(
                                                                                                                        cublasZsyr_v2) REFUSED(cublasZsyrk_v2)
                                                                                                                        REFUSED(cublasZsyrkx) REFUSED(
                                                                                                                            cublasZtrmm_v2) REFUSED(cublasZtrmm_v2_64)
                                                                                                                            REFUSED(cublasZtrmv_v2)
                                                                                                                                REFUSED(cublasZtrmv_v2_64)
                                                                                                                                    REFUSED(cublasZtrsmBatched)
                                                                                                                                        REFUSED(cublasZtrsm_v2)
                                                                                                                                            REFUSED(cublasZtrsm_v2_64)
                                                                                                                                                REFUSED(cublasZtrsv_v2)
