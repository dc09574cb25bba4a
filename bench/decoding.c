/* Decode JPEGs in four ways with libjpeg-turbo and print the CPU seconds of each, over all pictures.
   Standard input has a line for each: path, then left, top, width and height of the part that is
   wanted. decoding.py compiles and calls this. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <jpeglib.h>

enum { FULL, CROP, SCALED, SCALED_CROP, WAYS };
static const unsigned TARGET = 224; /* what the part is resized to [pixels] */
static const size_t MOST_PIXELS = 64u << 20;

static double cpu_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

/* The least size in eighths at which the part still has TARGET pixels each way. */
static unsigned eighths(unsigned width, unsigned height) {
    unsigned shorter = width < height ? width : height, m = 8;
    while (m > 1 && shorter * (m - 1) / 8 >= TARGET)
        m--;
    return m;
}

static void decode(const unsigned char *file, size_t bytes, int way, const unsigned part[4], unsigned char *pixels) {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, (unsigned char *)file, bytes);
    jpeg_read_header(&jpeg, TRUE);
    jpeg.out_color_space = JCS_RGB;
    jpeg.dct_method = JDCT_ISLOW;
    unsigned m = way == SCALED || way == SCALED_CROP ? eighths(part[2], part[3]) : 8;
    jpeg.scale_num = m;
    jpeg.scale_denom = 8;
    jpeg_start_decompress(&jpeg);
    JDIMENSION lines = jpeg.output_height;
    if (way == CROP || way == SCALED_CROP) {
        JDIMENSION left = part[0] * m / 8, width = part[2] * m / 8;
        lines = part[3] * m / 8;
        jpeg_crop_scanline(&jpeg, &left, &width);
        jpeg_skip_scanlines(&jpeg, part[1] * m / 8);
    }
    for (JDIMENSION line = 0; line < lines; line++) {
        JSAMPROW row = pixels + 3ul * line * jpeg.output_width;
        jpeg_read_scanlines(&jpeg, &row, 1);
    }
    jpeg_abort_decompress(&jpeg);
    jpeg_destroy_decompress(&jpeg);
}

int main(void) {
    static char path[4096];
    unsigned part[4];
    double taken[WAYS] = {0};
    unsigned char *pixels = malloc(3 * MOST_PIXELS);
    for (int number = 0; scanf("%4095s %u %u %u %u", path, part, part + 1, part + 2, part + 3) == 5; number++) {
        FILE *stream = fopen(path, "rb");
        if (!stream)
            return perror(path), 1;
        fseek(stream, 0, SEEK_END);
        size_t bytes = ftell(stream);
        rewind(stream);
        unsigned char *file = malloc(bytes);
        if (fread(file, 1, bytes, stream) != bytes)
            return perror(path), 1;
        fclose(stream);
        for (int turn = 0; turn < WAYS; turn++) {
            int way = (turn + number) % WAYS; /* each is the first as often as the others */
            double began = cpu_s();
            decode(file, bytes, way, part, pixels);
            taken[way] += cpu_s() - began;
        }
        free(file);
    }
    printf("%.6f %.6f %.6f %.6f\n", taken[FULL], taken[CROP], taken[SCALED], taken[SCALED_CROP]);
    return 0;
}
