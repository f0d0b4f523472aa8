// Of the 452 names of libcudart.so.13, those that forms.cpp and cudart/ do not have.
REFUSED(__cudaGetProcAddress)
REFUSED(__cudaInitModule)
REFUSED(__cudaRegisterHostVar) REFUSED(__cudaRegisterManagedVar) REFUSED(__cudaRegisterUnifiedTable) REFUSED(cudaArrayGetInfo) REFUSED(cudaArrayGetMemoryRequirements) REFUSED(
    cudaArrayGetPlane) REFUSED(cudaArrayGetSparseProperties) REFUSED(cudaChooseDevice) REFUSED(cudaCreateChannelDesc) REFUSED(cudaCreateSurfaceObject) REFUSED(cudaCreateTextureObject)
    REFUSED(cudaCtxResetPersistingL2Cache) REFUSED(cudaDestroyExternalMemory) REFUSED(cudaDestroyExternalSemaphore) REFUSED(cudaDestroySurfaceObject) REFUSED(cudaDestroyTextureObject) REFUSED(
        cudaDevResourceGenerateDesc) REFUSED(cudaDevSmResourceSplit) REFUSED(cudaDevSmResourceSplitByCount) REFUSED(cudaDeviceFlushGPUDirectRDMAWrites) REFUSED(cudaDeviceGetCacheConfig)
        REFUSED(cudaDeviceGetDevResource) REFUSED(cudaDeviceGetExecutionCtx) REFUSED(cudaDeviceGetGraphMemAttribute) REFUSED(cudaDeviceGetHostAtomicCapabilities) REFUSED(cudaDeviceGetMemPool) REFUSED(
            cudaDeviceGetNvSciSyncAttributes) REFUSED(cudaDeviceGetP2PAtomicCapabilities) REFUSED(cudaDeviceGetP2PAttribute) REFUSED(cudaDeviceGetSharedMemConfig) REFUSED(cudaDeviceGetTexture1DLinearMaxWidth) REFUSED(cudaDeviceGraphMemTrim)
            REFUSED(cudaDeviceRegisterAsyncNotification) REFUSED(cudaDeviceSetCacheConfig) REFUSED(cudaDeviceSetGraphMemAttribute) REFUSED(cudaDeviceSetMemPool) REFUSED(cudaDeviceSetSharedMemConfig) REFUSED(cudaDeviceUnregisterAsyncNotification) REFUSED(
                cudaEGLStreamConsumerAcquireFrame) REFUSED(cudaEGLStreamConsumerConnect) REFUSED(cudaEGLStreamConsumerConnectWithFlags) REFUSED(cudaEGLStreamConsumerDisconnect)
                REFUSED(cudaEGLStreamConsumerReleaseFrame) REFUSED(cudaEGLStreamProducerConnect) REFUSED(cudaEGLStreamProducerDisconnect) REFUSED(cudaEGLStreamProducerPresentFrame) REFUSED(
                    cudaEGLStreamProducerReturnFrame) REFUSED(cudaEventCreateFromEGLSync) REFUSED(cudaExecutionCtxDestroy) REFUSED(cudaExecutionCtxGetDevResource)
                    REFUSED(cudaExecutionCtxGetDevice) REFUSED(cudaExecutionCtxGetId) REFUSED(cudaExecutionCtxRecordEvent) REFUSED(cudaExecutionCtxStreamCreate) REFUSED(cudaExecutionCtxSynchronize) REFUSED(
                        cudaExecutionCtxWaitEvent) REFUSED(cudaExternalMemoryGetMappedBuffer) REFUSED(cudaExternalMemoryGetMappedMipmappedArray) REFUSED(cudaFreeArray) REFUSED(cudaFreeMipmappedArray) REFUSED(cudaFuncGetName)
                        REFUSED(cudaFuncGetParamCount) REFUSED(cudaFuncGetParamInfo) REFUSED(cudaFuncSetCacheConfig) REFUSED(cudaFuncSetSharedMemConfig) REFUSED(cudaGLGetDevices) REFUSED(
                            cudaGLMapBufferObject) REFUSED(cudaGLMapBufferObjectAsync) REFUSED(cudaGLRegisterBufferObject) REFUSED(cudaGLSetBufferObjectMapFlags) REFUSED(cudaGLSetGLDevice)
                            REFUSED(cudaGLUnmapBufferObject) REFUSED(cudaGLUnmapBufferObjectAsync) REFUSED(cudaGLUnregisterBufferObject) REFUSED(cudaGetChannelDesc) REFUSED(cudaGetExportTable) REFUSED(cudaGetFuncBySymbol) REFUSED(
                                cudaGetKernel) REFUSED(cudaGetMipmappedArrayLevel) REFUSED(cudaGetSurfaceObjectResourceDesc) REFUSED(cudaGetTextureObjectResourceDesc) REFUSED(cudaGetTextureObjectResourceViewDesc)
                                REFUSED(cudaGetTextureObjectTextureDesc) REFUSED(cudaGraphAddChildGraphNode) REFUSED(cudaGraphAddDependencies) REFUSED(cudaGraphAddEmptyNode) REFUSED(cudaGraphAddEventRecordNode) REFUSED(
                                    cudaGraphAddEventWaitNode) REFUSED(cudaGraphAddExternalSemaphoresSignalNode) REFUSED(cudaGraphAddExternalSemaphoresWaitNode) REFUSED(cudaGraphAddHostNode) REFUSED(cudaGraphAddKernelNode)
                                    REFUSED(cudaGraphAddMemAllocNode) REFUSED(cudaGraphAddMemFreeNode) REFUSED(cudaGraphAddMemcpyNode) REFUSED(cudaGraphAddMemcpyNode1D) REFUSED(
                                        cudaGraphAddMemcpyNodeFromSymbol) REFUSED(cudaGraphAddMemcpyNodeToSymbol) REFUSED(cudaGraphAddMemsetNode) REFUSED(cudaGraphAddNode)
                                        REFUSED(cudaGraphChildGraphNodeGetGraph) REFUSED(cudaGraphClone) REFUSED(cudaGraphConditionalHandleCreate) REFUSED(cudaGraphConditionalHandleCreate_v2) REFUSED(
                                            cudaGraphCreate) REFUSED(cudaGraphDebugDotPrint) REFUSED(cudaGraphDestroyNode) REFUSED(cudaGraphEventRecordNodeGetEvent)
                                            REFUSED(cudaGraphEventRecordNodeSetEvent) REFUSED(cudaGraphEventWaitNodeGetEvent) REFUSED(cudaGraphEventWaitNodeSetEvent) REFUSED(cudaGraphExecChildGraphNodeSetParams) REFUSED(
                                                cudaGraphExecEventRecordNodeSetEvent) REFUSED(cudaGraphExecEventWaitNodeSetEvent) REFUSED(cudaGraphExecExternalSemaphoresSignalNodeSetParams) REFUSED(cudaGraphExecExternalSemaphoresWaitNodeSetParams)
                                                REFUSED(cudaGraphExecGetFlags) REFUSED(cudaGraphExecGetId) REFUSED(cudaGraphExecHostNodeSetParams) REFUSED(cudaGraphExecKernelNodeSetParams) REFUSED(
                                                    cudaGraphExecMemcpyNodeSetParams) REFUSED(cudaGraphExecMemcpyNodeSetParams1D) REFUSED(cudaGraphExecMemcpyNodeSetParamsFromSymbol) REFUSED(cudaGraphExecMemcpyNodeSetParamsToSymbol)
                                                    REFUSED(cudaGraphExecMemsetNodeSetParams) REFUSED(cudaGraphExecNodeSetParams) REFUSED(cudaGraphExternalSemaphoresSignalNodeGetParams) REFUSED(
                                                        cudaGraphExternalSemaphoresSignalNodeSetParams) REFUSED(cudaGraphExternalSemaphoresWaitNodeGetParams)
                                                        REFUSED(cudaGraphExternalSemaphoresWaitNodeSetParams) REFUSED(cudaGraphGetEdges) REFUSED(cudaGraphGetId) REFUSED(
                                                            cudaGraphGetRootNodes) REFUSED(cudaGraphHostNodeGetParams) REFUSED(cudaGraphHostNodeSetParams) REFUSED(cudaGraphInstantiateWithParams) REFUSED(cudaGraphKernelNodeCopyAttributes)
                                                            REFUSED(cudaGraphKernelNodeGetAttribute) REFUSED(cudaGraphKernelNodeGetParams) REFUSED(
                                                                cudaGraphKernelNodeSetAttribute) REFUSED(cudaGraphKernelNodeSetParams) REFUSED(cudaGraphMemAllocNodeGetParams) REFUSED(cudaGraphMemFreeNodeGetParams) REFUSED(cudaGraphMemcpyNodeGetParams)
                                                                REFUSED(cudaGraphMemcpyNodeSetParams) REFUSED(cudaGraphMemcpyNodeSetParams1D) REFUSED(cudaGraphMemcpyNodeSetParamsFromSymbol) REFUSED(
                                                                    cudaGraphMemcpyNodeSetParamsToSymbol) REFUSED(cudaGraphMemsetNodeGetParams) REFUSED(cudaGraphMemsetNodeSetParams)
                                                                    REFUSED(cudaGraphNodeFindInClone) REFUSED(cudaGraphNodeGetContainingGraph) REFUSED(cudaGraphNodeGetDependencies) REFUSED(cudaGraphNodeGetDependentNodes) REFUSED(
                                                                        cudaGraphNodeGetEnabled) REFUSED(cudaGraphNodeGetLocalId) REFUSED(cudaGraphNodeGetParams) REFUSED(cudaGraphNodeGetToolsId)
                                                                        REFUSED(cudaGraphNodeGetType) REFUSED(cudaGraphNodeSetEnabled) REFUSED(cudaGraphNodeSetParams) REFUSED(
                                                                            cudaGraphRemoveDependencies) REFUSED(cudaGraphicsEGLRegisterImage) REFUSED(cudaGraphicsGLRegisterBuffer)
                                                                            REFUSED(cudaGraphicsGLRegisterImage) REFUSED(cudaGraphicsMapResources) REFUSED(cudaGraphicsResourceGetMappedEglFrame) REFUSED(
                                                                                cudaGraphicsResourceGetMappedMipmappedArray) REFUSED(cudaGraphicsResourceGetMappedPointer) REFUSED(cudaGraphicsResourceSetMapFlags)
                                                                                REFUSED(cudaGraphicsSubResourceGetMappedArray) REFUSED(cudaGraphicsUnmapResources) REFUSED(cudaGraphicsUnregisterResource) REFUSED(cudaGraphicsVDPAURegisterOutputSurface) REFUSED(
                                                                                    cudaGraphicsVDPAURegisterVideoSurface) REFUSED(cudaGreenCtxCreate) REFUSED(cudaImportExternalMemory) REFUSED(cudaImportExternalSemaphore)
                                                                                    REFUSED(cudaIpcCloseMemHandle) REFUSED(cudaIpcGetEventHandle) REFUSED(
                                                                                        cudaIpcGetMemHandle) REFUSED(cudaIpcOpenEventHandle) REFUSED(cudaIpcOpenMemHandle) REFUSED(cudaLaunchHostFunc_v2)
                                                                                        REFUSED(cudaLibraryEnumerateKernels) REFUSED(cudaLibraryGetGlobal) REFUSED(cudaLibraryGetKernel) REFUSED(
                                                                                            cudaLibraryGetKernelCount) REFUSED(cudaLibraryGetManaged) REFUSED(cudaLibraryGetUnifiedFunction)
                                                                                            REFUSED(cudaLibraryLoadData) REFUSED(cudaLibraryLoadFromFile) REFUSED(cudaLibraryUnload) REFUSED(
                                                                                                cudaLogsCurrent) REFUSED(cudaLogsDumpToFile) REFUSED(cudaLogsDumpToMemory)
                                                                                                REFUSED(cudaLogsRegisterCallback) REFUSED(cudaLogsUnregisterCallback) REFUSED(
                                                                                                    cudaMalloc3D) REFUSED(cudaMalloc3DArray) REFUSED(cudaMallocArray) REFUSED(cudaMallocFromPoolAsync)
                                                                                                    REFUSED(cudaMallocMipmappedArray) REFUSED(cudaMallocPitch) REFUSED(
                                                                                                        cudaMemAdvise) REFUSED(cudaMemDiscardAndPrefetchBatchAsync) REFUSED(cudaMemDiscardBatchAsync)
                                                                                                        REFUSED(cudaMemGetDefaultMemPool) REFUSED(cudaMemGetMemPool) REFUSED(
                                                                                                            cudaMemPoolCreate) REFUSED(cudaMemPoolDestroy) REFUSED(cudaMemPoolExportPointer) REFUSED(cudaMemPoolExportToShareableHandle)
                                                                                                            REFUSED(cudaMemPoolGetAccess) REFUSED(cudaMemPoolGetAttribute) REFUSED(cudaMemPoolImportFromShareableHandle) REFUSED(
                                                                                                                cudaMemPoolImportPointer) REFUSED(cudaMemPrefetchAsync) REFUSED(cudaMemPrefetchBatchAsync)
                                                                                                                REFUSED(cudaMemRangeGetAttribute) REFUSED(cudaMemRangeGetAttributes) REFUSED(
                                                                                                                    cudaMemSetMemPool) REFUSED(cudaMemcpy2D) REFUSED(cudaMemcpy2DArrayToArray)
                                                                                                                    REFUSED(cudaMemcpy2DFromArray) REFUSED(cudaMemcpy2DFromArrayAsync) REFUSED(
                                                                                                                        cudaMemcpy2DToArray) REFUSED(cudaMemcpy2DToArrayAsync)
                                                                                                                        REFUSED(cudaMemcpy3D) REFUSED(cudaMemcpy3DAsync) REFUSED(cudaMemcpy3DBatchAsync) REFUSED(
                                                                                                                            cudaMemcpy3DPeer) REFUSED(cudaMemcpy3DPeerAsync)
                                                                                                                            REFUSED(cudaMemcpy3DWithAttributesAsync) REFUSED(
                                                                                                                                cudaMemcpyArrayToArray) REFUSED(cudaMemcpyBatchAsync)
                                                                                                                                REFUSED(cudaMemcpyFromArray) REFUSED(cudaMemcpyFromArrayAsync) REFUSED(
                                                                                                                                    cudaMemcpyFromSymbol) REFUSED(cudaMemcpyFromSymbolAsync)
                                                                                                                                    REFUSED(cudaMemcpyToArray) REFUSED(cudaMemcpyToArrayAsync) REFUSED(
                                                                                                                                        cudaMemcpyToSymbolAsync) REFUSED(cudaMemcpyWithAttributesAsync)
                                                                                                                                        REFUSED(cudaMemset2D) REFUSED(cudaMemset2DAsync) REFUSED(
                                                                                                                                            cudaMemset3D) REFUSED(cudaMemset3DAsync) REFUSED(cudaMipmappedArrayGetMemoryRequirements)
                                                                                                                                            REFUSED(cudaMipmappedArrayGetSparseProperties) REFUSED(
                                                                                                                                                cudaOccupancyAvailableDynamicSMemPerBlock) REFUSED(cudaOccupancyMaxActiveClusters)
                                                                                                                                                REFUSED(cudaOccupancyMaxPotentialClusterSize) REFUSED(
                                                                                                                                                    cudaSetValidDevices) REFUSED(cudaSignalExternalSemaphoresAsync)
                                                                                                                                                    REFUSED(cudaStreamAttachMemAsync) REFUSED(
                                                                                                                                                        cudaStreamBeginCaptureToGraph)
                                                                                                                                                        REFUSED(cudaStreamCopyAttributes) REFUSED(
                                                                                                                                                            cudaStreamGetAttribute) REFUSED(cudaStreamGetDevResource)
                                                                                                                                                            REFUSED(cudaStreamGetDevice)
                                                                                                                                                                REFUSED(cudaStreamSetAttribute)
                                                                                                                                                                    REFUSED(cudaStreamUpdateCaptureDependencies)
                                                                                                                                                                        REFUSED(cudaVDPAUGetDevice)
                                                                                                                                                                            REFUSED(cudaVDPAUSetVDPAUDevice)
                                                                                                                                                                                REFUSED(cudaWaitExternalSemaphoresAsync)
