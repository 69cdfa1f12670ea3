// Package sheet reads tables as spreadsheets and their kin write them: in any of a few
// encodings, with any line ends, separated by commas, semicolons, tabs or bars, with
// titles above the header and a total below the rows, amounts with a sign of a
// currency, thousands separators and decimal commas. What can mean one thing only is
// read, and the format that was found is told; what can mean two things is refused
// with the place and with what to type instead. A file is read once, row by row, in
// flat memory, and all its mistakes are collected: the first twenty are listed, the
// rest counted by kind.
//
// The package only computes: it takes a reader and gives rows and mistakes.
package sheet
