package outbox

import (
	"embed"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io/fs"
	"os"
	"strings"
	texttemplate "text/template"
)

//go:embed templates
var embedded embed.FS

// maxTemplate bounds one file of a folder of templates, and maxRendered what one makes.
const (
	maxTemplate = 256 << 10
	maxRendered = 512 << 10
)

// mailTemplate is how one kind of mail looks. html is nil where there is no such file:
// then the mail is text alone.
type mailTemplate struct {
	subject, text *texttemplate.Template
	html          *htmltemplate.Template
}

// TemplateError says which file of templates can't be used, and why.
type TemplateError struct {
	File string
	Err  error
}

func (e *TemplateError) Error() string { return fmt.Sprintf("template %s: %v", e.File, e.Err) }
func (e *TemplateError) Unwrap() error { return e.Err }

// loadTemplates reads the templates of some kinds. What folder has counts, else what
// comes with the program; a folder that has the text of a mail replaces its HTML too.
func loadTemplates(folder string, kinds []string) (map[string]mailTemplate, error) {
	own, err := fs.Sub(embedded, "templates")
	if err != nil {
		return nil, err
	}
	loaded := map[string]mailTemplate{}
	for _, kind := range kinds {
		from := own
		if folder != "" {
			switch _, err := os.Stat(folder + "/" + kind + ".txt"); {
			case err == nil:
				from = os.DirFS(folder)
			case !errors.Is(err, fs.ErrNotExist):
				return nil, &TemplateError{folder, err}
			}
		}
		t, err := parseKind(from, kind)
		if err != nil {
			return nil, err
		}
		loaded[kind] = t
	}
	return loaded, nil
}

// parseKind reads KIND.txt, whose first line is the subject and whose second is empty,
// and KIND.html if there is one.
func parseKind(from fs.FS, kind string) (t mailTemplate, err error) {
	name := kind + ".txt"
	text, err := readTemplate(from, name)
	if err != nil {
		return t, &TemplateError{name, err}
	}
	first, body, _ := strings.Cut(text, "\n")
	subject, isSubject := strings.CutPrefix(first, "Subject: ")
	if !isSubject || !strings.HasPrefix(body, "\n") {
		return t, &TemplateError{name, errors.New("want a first line of \"Subject: …\" and an empty one after it")}
	}
	if t.subject, err = texttemplate.New(name).Option("missingkey=error").Parse(subject); err != nil {
		return t, &TemplateError{name, err}
	}
	if t.text, err = texttemplate.New(name).Option("missingkey=error").Parse(body[1:]); err != nil {
		return t, &TemplateError{name, err}
	}
	name = kind + ".html"
	switch text, err = readTemplate(from, name); {
	case errors.Is(err, fs.ErrNotExist):
		return t, nil
	case err != nil:
		return t, &TemplateError{name, err}
	}
	if t.html, err = htmltemplate.New(name).Option("missingkey=error").Parse(text); err != nil {
		return t, &TemplateError{name, err}
	}
	return t, nil
}

func readTemplate(from fs.FS, name string) (string, error) {
	info, err := fs.Stat(from, name)
	if err != nil {
		return "", err
	}
	if info.Size() > maxTemplate {
		return "", fmt.Errorf("larger than %d bytes", maxTemplate)
	}
	text, err := fs.ReadFile(from, name)
	return strings.ReplaceAll(string(text), "\r\n", "\n"), err
}

// render makes the mail's texts. What a template makes of a value can't be longer than
// a mail is.
func (t mailTemplate) render(data Mail) (subject, text, html string, err error) {
	var b boundedText
	if err = t.subject.Execute(&b, data); err != nil {
		return
	}
	subject = oneLine(b.take())
	if err = t.text.Execute(&b, data); err != nil {
		return
	}
	text = b.take()
	if t.html != nil {
		err = t.html.Execute(&b, data)
		html = b.take()
	}
	switch {
	case err == nil && subject == "":
		err = errors.New("the subject is empty")
	case err == nil && strings.TrimSpace(text) == "":
		err = errors.New("the text is empty")
	}
	return subject, text, html, err
}

type boundedText struct{ strings.Builder }

func (b *boundedText) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxRendered {
		return 0, fmt.Errorf("it makes more than %d bytes", maxRendered)
	}
	return b.Builder.Write(p)
}

func (b *boundedText) take() string {
	s := b.String()
	b.Reset()
	return s
}

// oneLine makes one line of a text: control characters, by which a name could become a
// header, are blanks.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}
